"""Asks the models about the images of a split, a shard at a time: `shard_answers.py`."""
