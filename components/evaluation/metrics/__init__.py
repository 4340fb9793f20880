"""Metrics of classification, with intervals, curves and slices, without TensorFlow."""
