"""The pictures of the report: samples of each class, the worst mistakes, rejects and copies."""
