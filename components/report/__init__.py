"""What was run and what came of it, for people and machines; `component.py` is the door."""
