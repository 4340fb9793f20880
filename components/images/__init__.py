"""Pixels: the check of a file, decoding, transcoding, the canonical form, thumbnails."""
