"""Ways to read the same images, one change from each to the next; `rungs.py` is the door."""
