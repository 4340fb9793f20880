"""The border to TensorFlow Model Analysis: its configuration and its files."""
