"""Push blessed models to the folder that serves them. Start with `component.py`."""
