"""The training loop: phases, epochs, steps, checkpoints; start with `phases.py`."""
