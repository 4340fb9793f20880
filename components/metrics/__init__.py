"""Classification metrics with confidence intervals, curves and slices; no TensorFlow."""
