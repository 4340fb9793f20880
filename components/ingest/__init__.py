"""From a folder of image files to shards of examples; `component.py` is the door."""
