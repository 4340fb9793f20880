"""Uploads a specification, starts a run and follows it."""
