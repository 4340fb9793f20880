"""Validation: statistics, schema, anomalies and drift, and the gate that stops a run."""
