"""Prediction: a blessed model predicts every file of a folder. Start with `component.py`."""
