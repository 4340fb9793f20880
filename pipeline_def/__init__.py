"""What the image pipeline is made of: configuration, pixels, datasets, model and the DAG."""
