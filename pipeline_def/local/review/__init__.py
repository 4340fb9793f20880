"""`local_runner.py review`: a page on which a person decides about suspects; start with `app.py`."""
