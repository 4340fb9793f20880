"""A project of your own on tfx-image-pipeline."""
