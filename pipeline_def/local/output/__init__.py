"""The output of a local run: where it lies, which results in it are whole, what is damaged."""
