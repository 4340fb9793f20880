"""TFX components of the image pipeline: ingest, gate, transform, baseline, evaluation."""
