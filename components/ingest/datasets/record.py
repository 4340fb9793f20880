"""What all formats of shards share: the shard, its records, and how a record is found again."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from components.contract.errors import UserError
from components.storage.folder import open_stream, reason_of
from components.storage.folder_listing import Found

_GZIP = b"\x1f\x8b"
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Shard(NamedTuple):
    """A file of many records."""

    folder: str
    """Path or URL of the listed folder."""
    file: Found
    most_bytes: int
    """Longer images are not read."""

    def open(self) -> BinaryIO:
        """Open the shard; a gzipped one is decompressed on the way, and seeks forward only."""
        stream = open_stream(self.folder, self.file.path, self.file.size)
        start = stream.read(len(_GZIP))
        stream.seek(0)
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if start == _GZIP else stream


class Record(NamedTuple):
    """A record as the pass over its shard finds it."""

    place: str
    """Where its image is found again, in the format's own terms."""
    size: int | None
    """Bytes of its image; None if it has none."""
    features: Mapping[str, Any]
    """The chosen features that it has, without the image."""
    problem: str = ""
    """Why it cannot be read, if so."""
    checksum: str = ""
    """Of its image, as in `ImageFile`, if the pass reads the image anyway."""


class DamagedShardError(Exception):
    """From here on, the records of a shard cannot be found."""


class Format(NamedTuple):
    """Functions that read the shards of one format; all yield in the order of the records."""

    title: str
    peek: Callable[[Shard], Iterator[dict[str, Any]]]
    """All features of the records; images may be cut."""
    scan: Callable[[Shard, str, Sequence[str]], Iterator[Record]]
    """Records with the image of the given name, and the given further features."""
    read: Callable[[Shard, str, Sequence[str]], Iterator[bytes | None]]
    """The image of the given name at each of the given places; None if it is damaged."""
    class_names: Callable[[Shard], Mapping[str, Sequence[str]]] = lambda _: {}
    """Feature → names of its integers, if the shard has them."""


def read_ranges(shard: Shard, _: str, places: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the bytes at each place, an offset and a size; None if the shard ends before."""
    with shard.open() as stream:
        for place in places:
            start, size = map(int, place.split())
            stream.seek(start)
            data = stream.read(size)
            yield data if len(data) == size else None


class Origin(NamedTuple):
    """How to find a record again; travels as the version of its `ImageFile`."""

    layout: str
    image: str
    """Name of the feature."""
    shard_size: int
    """Bytes."""
    shard_version: str
    place: str
    problem: str = ""

    def encode(self) -> str:
        """Return the origin as text, which changes when the shard does."""
        return _encode(self)

    @classmethod
    def decode(cls, version: str) -> "Origin":
        """Read what `encode` has written."""
        return cls(*json.loads(version))


def explain_damage(error: Exception) -> DamagedShardError:
    """Turn an error of a decoder into one sentence's part; errors of the store stay.

    Raises:
        UserError: `error` itself.
    """
    if isinstance(error, UserError):
        raise error
    if isinstance(error, DamagedShardError):
        return error
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return DamagedShardError(f"its gzip data are damaged: {reason_of(error)}")
    return DamagedShardError(reason_of(error))
