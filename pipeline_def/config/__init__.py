"""Every choice of the pipeline, and the command line and YAML made of them."""
