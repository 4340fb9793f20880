"""The command of every step in its container; `entrypoint` is the door."""
