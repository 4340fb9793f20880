"""The Example contract: the feature keys of a record."""

from __future__ import annotations

# The keys of TensorFlow's own image record format (tensorflow/models, `tf_example_decoder.py`).
ENCODED = "image/encoded"
"""The file, or what was made of it: a JPEG, PNG, GIF or BMP."""
FORMAT = "image/format"
"""One of `FORMATS`."""
FORMATS = ("bmp", "gif", "jpeg", "png")
HEIGHT = "image/height"
"""Pixels."""
WIDTH = "image/width"
"""Pixels."""
CHANNELS = "image/channels"
"""1 for gray, 3 for colour."""
FILENAME = "image/filename"
"""Path relative to the folder that was ingested, with "/" between its parts."""
SHA256 = "image/key/sha256"
"""Hexadecimal digest of the file as it was found."""
LABEL = "image/class/text"
"""Name of the class."""
LABEL_ID = "image/class/label"
"""Number of the class in Transform's vocabulary."""

# Two of our own, for statistics that show drift without decoding an image.
FILE_SIZE = "image/file_size"
"""Bytes of the file as it was found."""
LUMINANCE = "image/mean_luminance"
"""Mean of the luma (ITU-R BT.601) of the stored image, 0 to 255; absent when pixels were not
decoded."""

# The file, next to the split folders of an Examples artifact, that counts records per shard.
INDEX_FILE = "index.json"
