"""Blessed models go to the folder that serves them; `component.py` is the door."""
