"""What all benchmarks share: options, progress, fresh processes, spreads and bars."""
