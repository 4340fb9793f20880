"""Documentation, and the programs that draw its diagrams."""
