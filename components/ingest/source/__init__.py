"""The images of a folder or bucket, with labels and splits: layouts, manifests, spans, listing."""
