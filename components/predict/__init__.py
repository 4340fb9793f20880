"""Prediction: a pushed model predicts files and folders. Start with `flow.py`."""
