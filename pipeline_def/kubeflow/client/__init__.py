"""Start, follow and stop runs on a cluster; start with `runs.py`."""
