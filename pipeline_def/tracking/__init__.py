"""What a run reports to MLflow, OpenLineage and Kubeflow's model registry; begin at `send.py`."""
