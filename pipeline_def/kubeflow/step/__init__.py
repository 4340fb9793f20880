"""The command of every step in its container; start with `entrypoint.py`."""
