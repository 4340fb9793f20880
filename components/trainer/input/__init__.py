"""The input pipeline, from shards to batches; start with `dataset.py`."""
