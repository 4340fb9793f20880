"""The Trainer: from transformed examples to an exported model; start with `run_fn.py`."""
