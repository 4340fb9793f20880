"""The search for a better training within `training.minutes`; `search.py` is the door."""
