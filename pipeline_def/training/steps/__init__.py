"""The training step, its parts, and many steps in one call."""
