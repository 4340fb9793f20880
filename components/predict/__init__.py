"""Prediction: a blessed model's answers to every file of a folder."""
