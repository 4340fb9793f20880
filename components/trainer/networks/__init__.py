"""Networks, their initial weights, and the user's own; start with `networks.py`."""
