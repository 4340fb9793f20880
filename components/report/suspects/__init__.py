"""Suspects: images whose label or quality a person should look at."""
