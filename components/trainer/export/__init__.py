"""The served model and its other formats; start with `signatures.py`."""
