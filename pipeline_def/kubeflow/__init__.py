"""What Kubeflow needs: the specification, the check of it, the steps' command, and clients."""
