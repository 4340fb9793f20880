"""Data sets in shards: TFRecord, TFDS, WebDataset and Parquet, listed and read by record."""
