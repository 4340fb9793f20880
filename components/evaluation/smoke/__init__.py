"""The smoke test of the exported model in a separate process; start with `smoke_test.py`."""
