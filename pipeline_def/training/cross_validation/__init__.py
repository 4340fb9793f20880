"""Cross-validation of a training on few images; `folds.py` is the door."""
