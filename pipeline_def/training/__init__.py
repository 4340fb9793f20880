"""Trainer's `run_fn`, the training loop and its checkpoints."""
