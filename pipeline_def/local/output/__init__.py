"""The output of a local run: its location, its checks and its integrity."""
