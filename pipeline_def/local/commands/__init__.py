"""The commands of `local_runner.py` that run here; `pipeline_def/commands.py` lists all."""
