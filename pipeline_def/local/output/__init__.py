"""The output of a local run: its location, its integrity and its repair."""
