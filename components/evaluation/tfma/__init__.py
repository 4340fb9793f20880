"""What plugs into TensorFlow Model Analysis: its configuration, our metrics and extractors."""
