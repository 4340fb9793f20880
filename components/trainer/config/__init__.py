"""What a training may be told, and the recipes; start with `training.py`."""
