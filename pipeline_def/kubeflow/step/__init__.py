"""What runs in the container of a step."""
