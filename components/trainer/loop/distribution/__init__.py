"""Where training runs, and the workers that share it."""
