"""The driver of ImagePredictor: a digest of the folder, so that new files are not a cache hit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tfx import types

from components.contract.lookup_driver import LookupDriver
from components.predict.sources import find_sources

FOUND_KEY = "found_files"
"""The execution property that the driver resolves: a digest of the files of the folder."""


class Driver(LookupDriver):
    """Lists the folder before the cache is looked up."""

    LOOKED_UP_FROM = ("folder",)

    @staticmethod
    def look_up(
        input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Digest names, sizes and versions of all files."""
        digest = hashlib.sha256()
        for source in find_sources([exec_properties["folder"]]):
            for entry in source.entries:
                fields = (entry.name, entry.file.size, entry.file.version)
                digest.update(repr(fields).encode("utf-8", "surrogateescape") + b"\n")
        return {FOUND_KEY: digest.hexdigest()}
