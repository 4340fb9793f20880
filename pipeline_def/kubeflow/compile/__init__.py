"""From the pipeline to a specification that Kubeflow takes; start with `compiler.py`."""
