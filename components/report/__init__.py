"""Reports on a run and its model, for people and machines; start with `component.py`."""
