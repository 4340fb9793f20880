"""The pictures of the report: samples, answered images, rejects, copies; `gathering.py` is the door."""
