"""Statistics, schema, anomalies, drift, and the gate that stops a run."""
