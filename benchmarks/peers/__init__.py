"""Other tools, measured beside this project."""
