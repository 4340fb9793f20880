"""The training loop: phases, epochs, steps, checkpoints; start with `train.py`."""
