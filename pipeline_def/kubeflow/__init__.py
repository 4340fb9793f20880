"""The pipeline on Kubeflow: compile, check, start and follow it, and run its steps."""
