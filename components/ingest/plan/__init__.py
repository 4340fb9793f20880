"""What becomes of each image: shards, splits, near duplicates, corrections, rejects."""
