"""Run records, their history and the `runs` command. Start with `record.py`."""
