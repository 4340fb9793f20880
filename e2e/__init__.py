"""The whole pipeline on a real Kubeflow: `uv run python -m e2e --help`."""
