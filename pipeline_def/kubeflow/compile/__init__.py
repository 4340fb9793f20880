"""From the pipeline to a specification that Kubeflow Pipelines takes."""
