"""Shared by all benchmarks: options, progress, fresh processes, spreads, results."""
