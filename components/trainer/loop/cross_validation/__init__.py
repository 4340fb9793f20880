"""Cross-validation of a training on few images; start with `folds.py`."""
