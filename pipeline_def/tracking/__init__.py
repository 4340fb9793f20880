"""What a run reports to MLflow."""
