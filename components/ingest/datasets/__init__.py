"""Data sets in shards: TFRecord, TFDS, WebDataset, Parquet and Arrow, listed and read by record."""
