"""The search for a better training within `training.minutes`; start with `search.py`."""
