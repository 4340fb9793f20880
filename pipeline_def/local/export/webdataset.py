"""Writes tar shards with KEY.jpg, KEY.cls and KEY.json for each image."""

import io
import itertools
import json
import os
import tarfile
from collections.abc import Iterator
from typing import Any

from pipeline_def.local.export.images import EXTENSIONS, Collection, Exported


def write(collection: Collection, target: str) -> Iterator[Exported]:
    """Write `target/SPLIT-NUMBER.tar`, and yield each image."""
    numbers = {label: number for number, label in enumerate(collection.labels)}
    for split in collection.counts:
        keys = itertools.count()
        for shard, _, images in collection.shards(split):
            path = os.path.join(target, f"{split}-{shard:06d}.tar")
            with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
                for image in images:
                    key = f"{next(keys):09d}"
                    facts: dict[str, Any] = {
                        "path": image.path,
                        "label": image.label,
                        "split": split,
                    }
                    facts |= {"sha256": image.sha256, "columns": dict(image.columns)}
                    _add(archive, f"{key}{EXTENSIONS[image.format]}", image.encoded)
                    _add(archive, f"{key}.cls", str(numbers[image.label]).encode())
                    _add(archive, f"{key}.json", json.dumps(facts).encode())
                    yield image


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # Owner, group and time are 0.
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
