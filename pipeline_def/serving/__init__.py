"""The signatures of the exported model."""
