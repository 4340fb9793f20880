"""From a folder of image files to shards of examples; start with `component.py`."""
