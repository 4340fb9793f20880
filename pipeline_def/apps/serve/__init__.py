"""`local_runner.py serve`: a page and TensorFlow Serving's REST; start with `command.py`."""
