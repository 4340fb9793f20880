"""`local_runner.py export-data`: the ingested images in formats that other programs read."""
