"""The pipeline on Kubeflow: compiled, checked, run step by step in containers, and followed."""
