"""From the pipeline to a specification that Kubeflow takes; `compiler` is the door."""
