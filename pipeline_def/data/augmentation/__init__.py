"""Random changes of training images, in the training step; `augment.py` is the door."""
