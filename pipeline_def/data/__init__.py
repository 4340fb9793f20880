"""From shards to batches for the accelerator; `dataset.py` is the door."""
