"""The pipeline on this machine: the run, its console, the record of runs."""
