"""From examples to canonical images with label ids; start with `component.py`."""
