"""Random changes of training images, in the training step; start with `augment.py`."""
