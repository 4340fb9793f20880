"""WebDataset: tar files in which members that differ only in the extension make up a sample."""

import collections
import gzip
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from components.ingest.datasets.features import EXTENSIONS
from components.ingest.datasets.record import DamagedShardError, Format, Record, Shard, read_ranges

_BLOCK = 512
# Members for labels and metadata; never unpickled are .pyd, .pickle, .pth and the like.
_TEXTS = ("cls", "cls2", "txt", "json", "id", "class", "label", "split", "index", "caption")
_LONGEST_TEXT = 2**20
_JSON = "json"
_PATH, _SIZE = "path", "size"
_CUT = "the file is cut"
_TORN = (
    "the members of its sample do not lie next to each other: pack them sorted by name, as with "
    "tar --sort=name"
)
_PRIME = 65521


class _Member(NamedTuple):
    """A regular file in the archive."""

    name: str
    start: int
    """Offset of its content, bytes."""
    size: int


def peek(shard: Shard) -> Iterator[dict[str, Any]]:
    """Yield the features of each sample: an extension, or a key of its JSON object, → value."""
    with shard.open() as stream:
        for _, sample in _samples(stream, shard):
            yield dict(_features(stream, sample, most=64))


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
            for key, sample in _samples(stream, shard):
                taken = next((name for name in (image, *others) if name in sample), "")
                has_pairs = has_pairs or len(sample.keys() & {image, *others}) > 1
                parts[key] += key != last
                last = key
                records.append((key, taken, _read_sample(stream, sample, taken, names)))
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


def _read_sample(
    stream: BinaryIO, sample: Mapping[str, _Member], image: str, names: Sequence[str]
) -> Record:
    fields: dict[str, Any] = {}
    for name, value in _texts(stream, sample):
        if name in names and fields.setdefault(name, value) != value:
            return Record("", 0, {}, f"it has two values of {name}")
    member = sample.get(image)
    place = f"{member.start} {member.size}" if member else ""
    return Record(place, member and member.size, fields)


def _samples(stream: BinaryIO, shard: Shard) -> Iterator[tuple[str, dict[str, _Member]]]:
    """Yield the key, and extension → member, of each sample; its members lie next to each other.

    By the format's convention an extension begins at the first dot: `1.seg.png` is no `png`.

    Raises:
        DamagedShardError: the file is cut, or a header is damaged.
    """
    last, sample = "", dict[str, _Member]()
    for member in _members(stream, shard):
        folder, slash, name = member.name.rpartition("/")
        stem, _, extension = name.partition(".")
        if not stem or not extension:
            continue
        key, extension = f"{folder}{slash}{stem}", extension.lower()
        if sample and (key != last or extension in sample):
            yield last, sample
            sample = {}
        last = key
        sample[extension] = member
    if sample:
        yield last, sample


def _members(stream: BinaryIO, shard: Shard) -> Iterator[_Member]:
    """Yield the regular files of an archive.

    tarfile's own loop takes a cut archive for a complete one.

    Source: POSIX.1-2001, pax Interchange Format, and the format of GNU tar.
    """
    position, special = 0, dict[str, str]()
    while True:
        stream.seek(position)
        block = stream.read(_BLOCK)
        if len(block) == _BLOCK and not block.strip(b"\0"):
            return
        if len(block) < _BLOCK:
            raise DamagedShardError(_CUT)
        try:
            info = _read_plain(block) or tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            size = int(special.pop(_SIZE, info.size))
        except (tarfile.HeaderError, ValueError) as error:
            raise DamagedShardError(f"a header is damaged ({error})") from error
        start = position + _BLOCK
        if size < 0:
            raise DamagedShardError("a header has a negative size")
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
            special |= _read_special(stream, info.type, size)
        elif info.isreg() and not info.sparse:
            yield _Member(special.pop(_PATH, info.name), start, size)
            special = {}
        elif info.type not in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
            special = {}
        position = start + -(-size // _BLOCK) * _BLOCK
        if size and not _has_byte(stream, start + size - 1, shard):
            raise DamagedShardError(_CUT)


def _read_plain(block: bytes) -> tarfile.TarInfo | None:
    """Read the header of a regular file with a short name, as most are; return None for others.

    tarfile parses all fields of all kinds, which takes several times as long.
    """
    if block[156:157] != tarfile.REGTYPE or block[345]:
        return None
    try:
        size, total = (int(block[a:b].rstrip(b"\0 "), 8) for a, b in ((124, 136), (148, 156)))
    except ValueError:
        return None
    # The checksum is the sum of all bytes, with spaces in its own place. The lower half of Adler-32
    # is that sum and 1, modulo a prime (RFC 1950).
    if zlib.adler32(b"%b%8b%b" % (block[:148], b"", block[156:])) % 2**16 != (total + 1) % _PRIME:
        return None
    info = tarfile.TarInfo(block[:100].partition(b"\0")[0].decode("utf-8", "surrogateescape"))
    info.size = size
    return info


def _has_byte(stream: BinaryIO, position: int, shard: Shard) -> bool:
    if not isinstance(stream, gzip.GzipFile):
        return position < shard.file.size
    stream.seek(position)
    return bool(stream.read(1))


def _read_special(stream: BinaryIO, kind: bytes, size: int) -> dict[str, str]:
    """Return what a special member says about the next one."""
    if size > _LONGEST_TEXT:
        raise DamagedShardError("the name of a member is too long")
    data = stream.read(size)
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {_PATH: data.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    headers = {}
    while data and (length := data.partition(b" ")[0]).isdigit() and int(length) > len(length):
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        headers[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        data = data[int(length) :]
    return {key: headers[key] for key in (_PATH, _SIZE) if key in headers}


def _features(
    stream: BinaryIO, sample: Mapping[str, _Member], *, most: int
) -> Iterator[tuple[str, Any]]:
    """Yield all features of a sample, those without text cut to `most` bytes."""
    yield from _texts(stream, sample)
    for name, member in sample.items():
        if name.rpartition(".")[2] not in _TEXTS:
            stream.seek(member.start)
            yield name, stream.read(min(member.size, most))


def _texts(stream: BinaryIO, sample: Mapping[str, _Member]) -> Iterator[tuple[str, Any]]:
    """Yield the features that are text, and those of a JSON object."""
    for name, member in sample.items():
        if name.rpartition(".")[2] not in _TEXTS or member.size > _LONGEST_TEXT:
            continue
        stream.seek(member.start)
        text = stream.read(member.size).decode("utf-8", "surrogateescape").strip()
        if name != _JSON:
            yield name, text
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            continue
        yield from content.items() if isinstance(content, dict) else [(name, content)]


FORMAT = Format("WebDataset tar files", peek, scan, read_ranges)
