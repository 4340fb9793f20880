"""Shards: written by workers, with an account of every file."""
