"""Canonical images that an earlier run of the same Transform has made of the same files."""

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.contract.artifact_files import link, make_folders, move, on_disk
from components.contract.errors import StorageError
from components.contract.example import ENCODED, FILENAME, INDEX_FILE, SHA256
from components.records.record_index import index_path, read_rows
from components.records.record_reader import EVERY, read_features
from components.records.shard_files import UNFINISHED, find_earlier, read_index

_IMAGE, _DIGEST, _FILENAME = (name.encode() for name in (ENCODED, SHA256, FILENAME))

# Each of them is searched for the files of each new shard.
_FEW = 16

Row = tuple[bytes, bytes, int]
"""Digest and path of the file of a record, and its label id."""

Place = tuple[str, str]
"""Split and name of a shard."""

Contents = Mapping[str, Mapping[str, list[str]]]
"""Split → name of each shard → digests of its files, and of their label ids."""


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
    followed: Mapping[Place, str]
    """New shard → name of the earlier shard with the same files."""
    equal: Collection[Place]
    """New shards whose rows are also those of the one that they follow."""
    left: Collection[Place]
    """Shards whose files are in others now, if these are few."""

    def list_rows(self, split: str, shard: str) -> dict[str, list[Row]]:
        """Return the rows of each earlier shard that may have images of `shard`."""
        start, end = _range(shard)
        found: dict[str, list[Row]] = {}
        same = self.followed.get((split, shard))
        for name in self.splits.get(split, ()):
            first, last = _range(name)
            if name == same or (split, name) in self.left or (first < end and start < last):
                # It may be damaged, or be in removal.
                with contextlib.suppress(OSError, StorageError):
                    found[name] = self._list_rows(split, name)
        return found

    def _list_rows(self, split: str, name: str) -> list[Row]:
        path = self._check(split, name)
        [indexed] = read_rows(self.uri, split, [name])
        records = read_features(path, (_DIGEST, _FILENAME))
        return list_rows(records, indexed[:, 2].tolist())

    def _check(self, split: str, name: str) -> str:
        """Return the path of a shard, unless it has been written to since its index."""
        path = _path(self.uri, split, name)
        written = os.stat(os.path.join(self.uri, INDEX_FILE)).st_mtime_ns
        if os.stat(path).st_mtime_ns > written:
            raise StorageError(f"{path} has been written to since its index.")
        return path

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

    def share(self, place: Place, target_uri: str) -> bool:
        """Use the shard that this one follows again; return whether it is still as it was."""
        (split, name), old = place, self.followed[place]
        with contextlib.suppress(OSError, StorageError):
            self._check(split, old)
            for path in (_path, index_path):
                _share(path(self.uri, split, old), path(target_uri, split, name), target_uri)
            return True
        return False


def list_rows(records: Iterable[Mapping[bytes, memoryview]], ids: Iterable[int]) -> list[Row]:
    """Return the row of each record that has these label ids."""
    return [
        (bytes(record[_DIGEST]), bytes(record.get(_FILENAME, b"")), label)
        for record, label in zip(records, ids, strict=True)
    ]


def describe_contents(index: Mapping[str, Any], vocabulary: Iterable[bytes]) -> Contents:
    """Return what decides the rows of each shard, given the index of ingest and all labels."""
    ids = b"\n".join(vocabulary)
    return {
        split: {
            name: [files, hashlib.sha256(labels.encode() + ids).hexdigest()[:32]]
            for name, (files, labels) in shards.items()
        }
        for split, shards in index.get("contents", {}).items()
    }


def find_earlier_images(transformed_uri: str, key: str, contents: Contents) -> EarlierImages | None:
    """Find the newest output of this Transform, on disk, whose images have this key.

    `contents` are those of the shards that will be transformed.
    """
    uri = find_earlier(transformed_uri, "made_by", key) if key and on_disk(transformed_uri) else ""
    if not uri:
        return None
    index = read_index(uri)
    before = {
        (split, content[0]): (name, content)
        for (split, name), content in _each_content(index.get("contents", {}))
    }
    found = {
        place: (*before[place[0], content[0]], content)
        for place, content in _each_content(contents)
        if (place[0], content[0]) in before
    }
    followed = {place: name for place, (name, *_) in found.items()}
    equal = {place for place, (_, old, new) in found.items() if old == new}
    left = {(split, name) for split, names in index["splits"].items() for name in names}
    left -= {(split, name) for (split, _), name in followed.items()}
    return EarlierImages(uri, index["splits"], followed, equal, left if len(left) <= _FEW else ())


def _each_content(contents: Contents) -> Iterator[tuple[Place, list[str]]]:
    for split, shards in contents.items():
        for name, content in shards.items():
            yield (split, name), content


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
