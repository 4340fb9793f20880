"""Measures the small versions of a model; start with `measurement.py`."""
