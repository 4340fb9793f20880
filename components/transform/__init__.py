"""From examples to canonical images with label ids; `component.py` is the door."""
