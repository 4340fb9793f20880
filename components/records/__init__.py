"""TFRecord files: framing, names of shards, the index of their records."""
