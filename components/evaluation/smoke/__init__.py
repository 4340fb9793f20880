"""The exported model in a process of its own, before it is pushed; `smoke_test.py` is the door."""
