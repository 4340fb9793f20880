"""How good a model is, and whether it may replace the one in use; start with `component.py`."""
