"""The report's pictures: samples, predicted images, rejects, copies; start with `gathering.py`."""
