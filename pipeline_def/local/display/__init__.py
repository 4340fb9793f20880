"""Terminal output of the commands: rows, progress bars, the display and the summary of a run."""
