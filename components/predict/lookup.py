"""Digests a folder of files to predict; imports neither TensorFlow nor TFX."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from components.contract.properties import LookupInput
from components.predict.files import find_sources

FOUND_KEY = "found_files"
"""The execution property that is looked up: a digest of the files of the folder."""


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Digest names, sizes and versions of all files."""
    digest = hashlib.sha256()
    for source in find_sources([properties["folder"]]):
        for entry in source.entries:
            fields = (entry.name, entry.file.size, entry.file.version)
            digest.update(repr(fields).encode("utf-8", "surrogateescape") + b"\n")
    return {FOUND_KEY: digest.hexdigest()}
