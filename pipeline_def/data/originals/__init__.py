"""Windows that training cuts out of originals, anew in every epoch; `decode.py` is the door."""
