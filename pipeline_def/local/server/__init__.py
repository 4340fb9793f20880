"""`local_runner.py serve`: a page and TensorFlow Serving's REST; the door is `command.py`."""
