"""What the benchmarks run against and with."""
