"""Canonical images that an earlier run of the same Transform has made of the same files."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import uuid
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.errors import StorageError
from components.contract.example import ENCODED, FILENAME, INDEX_FILE, SHA256
from components.records.record_index import index_path, read_rows
from components.records.record_reader import EVERY, read_features
from components.records.shard_files import UNFINISHED, find_earlier, read_index
from components.storage.artifact_files import link, make_folders, move, on_disk

_IMAGE, _DIGEST, _FILENAME = (name.encode() for name in (ENCODED, SHA256, FILENAME))

# Each of them is searched for the files of each new shard.
_FEW = 16

Row = tuple[bytes, bytes, int]
"""Digest and path of the file of a record, and its label id."""


def image_key(
    code: str, custom: Mapping[str, Any], index: Mapping[str, Any], names: Iterable[str]
) -> str:
    """Return a digest of what decides the output for a file but its label; "" if it is not known.

    Args:
        code: digest of the code of Transform.
        custom: its options, and how ingest shrank images.
        index: that of the examples.
        names: features of the output.
    """
    if not (code and index.get("made_by")):
        return ""
    text = json.dumps([code, index["made_by"], custom, sorted(names)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class EarlierImages:
    """The output of an earlier Transform, on disk."""

    uri: str
    splits: Mapping[str, Collection[str]]
    """Split → names of its shards."""
    firsts: Mapping[tuple[str, bytes], str]
    """Split and digest of the first file of each shard → name, which changes as data grow."""
    left: Collection[tuple[str, str]]
    """Split and name of shards whose files are in others now, if these are few."""

    def list_rows(self, split: str, shard: str, digest: bytes) -> dict[str, list[Row]]:
        """Return the rows of each earlier shard that may have images of `shard`.

        `digest` is that of its first file.
        """
        start, end = _range(shard)
        found: dict[str, list[Row]] = {}
        same = self.firsts.get((split, digest))
        for name in self.splits.get(split, ()):
            first, last = _range(name)
            if name == same or (split, name) in self.left or (first < end and start < last):
                # It may be damaged, or be in removal.
                with contextlib.suppress(OSError, StorageError):
                    found[name] = self._list_rows(split, name)
        return found

    def _list_rows(self, split: str, name: str) -> list[Row]:
        path = _path(self.uri, split, name)
        written = os.stat(os.path.join(self.uri, INDEX_FILE)).st_mtime_ns
        if os.stat(path).st_mtime_ns > written:
            raise StorageError(f"{path} has been written to since its index.")
        [indexed] = read_rows(self.uri, split, [name])
        records = read_features(path, (_DIGEST, _FILENAME))
        return list_rows(records, indexed[:, 2].tolist())

    def find_images(
        self, split: str, shards: Iterable[str], digests: Container[bytes]
    ) -> dict[bytes, memoryview]:
        """Return digest → canonical image of the files in `shards` that are among `digests`."""
        found: dict[bytes, memoryview] = {}
        for name in shards:
            with contextlib.suppress(OSError, StorageError):
                path = _path(self.uri, split, name)
                for record in read_features(path, (_DIGEST, _IMAGE), verify=EVERY):
                    if (digest := bytes(record[_DIGEST])) in digests:
                        found[digest] = record[_IMAGE]
        return found

    def share(self, split: str, name: str, target_uri: str, new_name: str) -> bool:
        """Use a shard again; return whether it is still there."""
        with contextlib.suppress(OSError):
            for path in (_path, index_path):
                _share(path(self.uri, split, name), path(target_uri, split, new_name), target_uri)
            return True
        return False


def list_rows(records: Iterable[Mapping[bytes, memoryview]], ids: Iterable[int]) -> list[Row]:
    """Return the row of each record that has these label ids."""
    return [
        (bytes(record[_DIGEST]), bytes(record.get(_FILENAME, b"")), label)
        for record, label in zip(records, ids, strict=True)
    ]


def find_earlier_images(
    transformed_uri: str, key: str, examples_uri: str, shards: Mapping[str, Collection[str]]
) -> EarlierImages | None:
    """Find the newest output of this Transform, on disk, whose images have this key.

    `shards` are those of `examples_uri`, split → names, which will be transformed.
    """
    uri = find_earlier(transformed_uri, "made_by", key) if key and on_disk(transformed_uri) else ""
    if not uri:
        return None
    splits = read_index(uri)["splits"]
    firsts, now = _list_firsts(uri, splits), _list_firsts(examples_uri, shards)
    left = {(split, name) for (split, digest), name in firsts.items() if (split, digest) not in now}
    return EarlierImages(uri, splits, firsts, left if len(left) <= _FEW else ())


def _list_firsts(uri: str, splits: Mapping[str, Collection[str]]) -> dict[tuple[str, bytes], str]:
    """Return split and digest of the first file of each shard → name of the shard."""
    firsts: dict[tuple[str, bytes], str] = {}
    for split, name in ((split, name) for split, names in splits.items() for name in names):
        with contextlib.suppress(OSError, StorageError):
            for record in itertools.islice(read_features(_path(uri, split, name), (_DIGEST,)), 1):
                firsts[split, bytes(record[_DIGEST])] = name
    return firsts


def _range(shard: str) -> tuple[float, float]:
    """Return where the hashes of the paths of a shard begin and end, 0 to 1."""
    index, count = map(int, re.findall(r"\d+", shard)[-2:])
    return index / count, (index + 1) / count


def _path(uri: str, split: str, name: str) -> str:
    return os.path.join(uri, f"Split-{split}", name)


def _share(source: str, target: str, target_uri: str) -> None:
    """Share a file that may be there, as Beam may repeat a shard."""
    unfinished = os.path.join(target_uri, UNFINISHED, uuid.uuid4().hex)
    for path in (target, unfinished):
        make_folders(os.path.dirname(path))
    link(source, unfinished)
    move(unfinished, target)
