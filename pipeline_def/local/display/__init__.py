"""What a person sees of a run and of every command: lines, bars, tables."""
