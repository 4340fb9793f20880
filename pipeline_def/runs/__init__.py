"""What was run, with what, and what came of it; `record.py` is the door."""
