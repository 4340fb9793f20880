"""Small versions of the model, measured; `measurement.py` is the door."""
