"""The commands of `local_runner.py`. Start with `table.py`."""
