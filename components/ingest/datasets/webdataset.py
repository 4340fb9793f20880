"""WebDataset: tar files in which members that differ only in the extension make up a sample."""

import collections
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from components.ingest.datasets.features import EXTENSIONS
from components.ingest.datasets.record import DamagedShardError, Format, Record, Shard, read_ranges

# Members for labels and metadata; never unpickled are .pyd, .pickle, .pth and the like.
_TEXTS = ("cls", "cls2", "txt", "json", "id", "class", "label", "split", "index", "caption")
_LONGEST_TEXT = 2**20
_JSON = "json"
_TORN = (
    "the members of its sample do not lie next to each other: pack them sorted by name, as with "
    "tar --sort=name"
)


class _Member(NamedTuple):
    """A regular file in the archive."""

    start: int
    """Offset of its content, bytes."""
    size: int
    content: bytes
    """Of text, all; else its start, if that is needed."""


def peek(shard: Shard) -> Iterator[dict[str, Any]]:
    """Yield the features of each sample: an extension, or a key of its JSON object, → value."""
    with shard.open() as stream:
        for _, sample in _samples(stream, first=64):
            images = {name: m.content for name, m in sample.items() if not _is_text(name)}
            yield dict(_texts(sample)) | images


def scan(shard: Shard, image: str, names: Sequence[str]) -> Iterator[Record]:
    """Yield the samples of a shard."""
    # Pillow tells formats by content, so one shard may mix extensions of images.
    stem, dot, extension = image.rpartition(".")
    others = [f"{stem}{dot}{other}" for other in EXTENSIONS if extension in EXTENSIONS]
    records: list[tuple[str, str, Record]] = []
    parts = collections.Counter[str]()
    has_pairs, damage, last = False, None, ""
    with shard.open() as stream:
        try:
            for key, sample in _samples(stream, first=0):
                taken = next((name for name in (image, *others) if name in sample), "")
                has_pairs = has_pairs or len(sample.keys() & {image, *others}) > 1
                parts[key] += key != last
                last = key
                records.append((key, taken, _read_sample(sample, taken, names)))
        except Exception as error:  # The records before it are good.
            damage = error
    for key, taken, record in records:
        is_half = record.size is None or (names and not record.features)
        if is_half and not record.problem and parts[key] > 1:
            yield Record("", 0, {}, _TORN)
        elif has_pairs and taken != image:
            # Beside a picture of the same name, such as 1.jpg, 1.png is its mask.
            yield record._replace(size=None)
        else:
            yield record
    if damage:
        raise damage


def _read_sample(sample: Mapping[str, _Member], image: str, names: Sequence[str]) -> Record:
    fields: dict[str, Any] = {}
    for name, value in _texts(sample):
        if name in names and fields.setdefault(name, value) != value:
            return Record("", 0, {}, f"it has two values of {name}")
    member = sample.get(image)
    place = f"{member.start} {member.size}" if member else ""
    return Record(place, member and member.size, fields)


def _samples(stream: BinaryIO, *, first: int) -> Iterator[tuple[str, dict[str, _Member]]]:
    """Yield the key, and extension → member, of each sample; its members lie next to each other.

    By the format's convention an extension begins at the first dot: `1.seg.png` is no `png`. Of
    members that are no text, the `first` bytes are read.

    Raises:
        DamagedShardError: the file is cut, or a header is damaged.
    """
    last, sample = "", dict[str, _Member]()
    for member in _members(stream):
        folder, slash, name = member.name.rpartition("/")
        stem, _, extension = name.partition(".")
        if not stem or not extension:
            continue
        key, extension = f"{folder}{slash}{stem}", extension.lower()
        if sample and (key != last or extension in sample):
            yield last, sample
            sample = {}
        last = key
        most = _LONGEST_TEXT if _is_text(extension) else first
        # Read now, as going back means to decompress a gzipped file again from its start.
        stream.seek(member.offset_data)
        content = stream.read(min(member.size, most))
        sample[extension] = _Member(member.offset_data, member.size, content)
    if sample:
        yield last, sample


class _Headers:
    """The stream for tarfile, which would read a special header of any size into memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self.tell, self.seek, self._read = stream.tell, stream.seek, stream.read

    def read(self, size: int) -> bytes:
        """Read the bytes of a header."""
        if not 0 <= size <= _LONGEST_TEXT:
            raise DamagedShardError("a header is too long")
        return self._read(size)


def _members(stream: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of an archive."""
    headers: Any = _Headers(stream)
    archive: Any
    try:
        with tarfile.open(fileobj=headers, mode="r:", encoding="utf-8") as archive:
            while member := archive.next():
                archive.members.clear()
                # From there on, tarfile would go back, and never end.
                if member.size < 0:
                    raise DamagedShardError("a header has a negative size")
                if member.isreg() and not member.sparse:
                    yield member
            # tarfile takes a cut archive, or a damaged header, for the end, or skips the latter.
            place = stream.tell()
            stream.seek(archive.offset)
            end = stream.read(tarfile.BLOCKSIZE)
    except tarfile.TarError as error:
        raise DamagedShardError(f"a header is damaged ({error})") from error
    if place != archive.offset + tarfile.BLOCKSIZE or end.strip(b"\0"):
        raise DamagedShardError("the file is cut, or a header is damaged")


def _is_text(extension: str) -> bool:
    return extension.rpartition(".")[2] in _TEXTS


def _texts(sample: Mapping[str, _Member]) -> Iterator[tuple[str, Any]]:
    """Yield the features that are text, and those of a JSON object."""
    for name, member in sample.items():
        if not _is_text(name) or member.size > _LONGEST_TEXT:
            continue
        text = member.content.decode("utf-8", "surrogateescape").strip()
        if name != _JSON:
            yield name, text
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            continue
        yield from content.items() if isinstance(content, dict) else [(name, content)]


FORMAT = Format("WebDataset tar files", peek, scan, read_ranges)
