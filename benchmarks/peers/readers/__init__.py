"""How the input pipelines of others read training images; runs in environments of their own."""
