"""This machine and process: memory, CPUs, signals, progress, locks, full disks."""
