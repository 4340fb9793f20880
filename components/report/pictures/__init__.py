"""The report's pictures: samples, answered images, rejects, copies; the door is `gathering.py`."""
