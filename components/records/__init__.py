"""TFRecord files: framing, shards, and the index of their records."""
