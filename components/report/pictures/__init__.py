"""The pictures of the report; `gathering.py` is the door to them."""
