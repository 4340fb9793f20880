"""`local_runner.py review`: a page for deciding about suspects; start with `app.py`."""
