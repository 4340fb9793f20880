"""Image files: checked for ingest, made canonical by Transform, decoded for training."""
