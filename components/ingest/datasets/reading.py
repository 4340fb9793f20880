"""Read listed images, from files or from the records of shards.

Shards are told by the names of files.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from components.contract.errors import DataError
from components.images.options import FileOptions
from components.ingest.datasets import columnar, example_records, webdataset
from components.ingest.datasets.record import Format, Origin, Shard, explain_damage
from components.ingest.source.listing import ImageFile, place_in_listing
from components.storage.fetch import CHANGED, Content, Unread, read_files, refuse
from components.storage.folder_listing import Found, find_file
from components.storage.retry import checksum_matches

FORMATS: dict[str, Format] = {
    "webdataset": webdataset.FORMAT,
    "parquet": columnar.FORMAT,
    "tfrecord": example_records.FORMAT,
}
"""Layout → its functions."""

# Row groups with a larger mean, as a multiple of the largest image that is used, are not read.
_MOST_OF_MEAN = 8

_ARROW = re.compile(r"\.(arrow|feather)$")
_NAMES = {
    "webdataset": re.compile(r"\.(tar|tar\.gz|tgz)$"),
    "parquet": re.compile(r"\.parquet$"),
    "tfrecord": re.compile(
        r"(\.tfrec|tfrecords?)([-_.]?\d+)*(-of-\d+)?(\.gz)?$|-\d{5,}-of-\d{5,}(\.gz)?$"
    ),
}
# What the readers of these formats pass over.
_LEFT = {
    "left by an unfinished writer": re.compile(r"(^|/)_"),
    "left by an unfinished download": re.compile(r"\.incomplete(/|$)"),
    "a checkpoint": re.compile(r"\.data-\d{5}-of-\d{5}$"),
    "an index of shards": re.compile(r"(^|/)([^/]*[._-])?(idx|index)([._-][^/]*)?/"),
}


# What marks a table, of whose files only some are in its current version.
_TABLES = {
    "a Delta table": re.compile("(^|/)_delta_log/"),
    "an Iceberg table": re.compile(
        r"(^|/)metadata/[^/]*\.metadata\.json$|(^|/)version-hint\.text$"
    ),
    "a Hudi table": re.compile(r"(^|/)hoodie\.properties$"),
}


def check_table(folder: str, path: str) -> None:
    """Raise `DataError` if a file below a folder marks a table, whose shards may be old."""
    for title, mark in _TABLES.items():
        if mark.search(path):
            raise DataError(
                f"Cannot read {title}, {folder}/{path}: read its current version with the table's "
                f"own library, and write it as Parquet to a folder of its own."
            )


def find_layout(name: str) -> str | None:
    """Return the layout of a shard by the end of its name, if it is one."""
    lower = name.lower()
    if not any(part in lower for part in (".", "tfrec", "-of-")):
        return None
    return next((layout for layout, known in _NAMES.items() if known.search(lower)), None)


def find_shards(entries: Iterable[Found]) -> tuple[dict[str, list[Found]], dict[str, str]]:
    """Tell shards, and files about them, from other files by their names.

    Return layout → its shards, and path → why readers of its format pass over it.
    """
    shards: dict[str, list[Found]] = {}
    left: dict[str, str] = {}
    for entry in entries:
        if _ARROW.search(entry.path.lower()):
            left[entry.path] = "an Arrow file: write the data set as Parquet"
        elif layout := find_layout(entry.path.rpartition("/")[2]):
            if why := next(
                (reason for reason, known in _LEFT.items() if known.search(entry.path)), ""
            ):
                left[entry.path] = why
            else:
                shards.setdefault(layout, []).append(entry)
    return shards, left


_Images = Iterator[tuple[ImageFile, Content]]


def read_images(
    folder: str, files: Sequence[ImageFile], config: FileOptions, *, first: int | None = None
) -> _Images:
    """Yield each image with its bytes, or the reason why they cannot be used, in order.

    All images of a listing are files, or all are records. Consecutive records of a shard are read
    in one pass if their numbers ascend.

    With `first`, only that many bytes from the start of each file are read; records are read whole.
    """
    if not files or files[0].shard is None:
        return read_files(folder, files, config, first=first)
    runs = (_read_records(folder, run, config) for run in _divide(files))
    return itertools.chain.from_iterable(runs)


def _divide(files: Iterable[ImageFile]) -> Iterator[list[ImageFile]]:
    """Yield the records of each pass over a shard: neighbors whose numbers ascend."""
    run: list[ImageFile] = []
    before = ("", 0)
    for file in files:
        shard, number = place = place_in_listing(file)
        if run and (shard != before[0] or number <= before[1]):
            yield run
            run = []
        run.append(file)
        before = place
    yield run


def _read_records(folder: str, files: Sequence[ImageFile], config: FileOptions) -> _Images:
    path, _ = place_in_listing(files[0])
    origins = [Origin.decode(file.version) for file in files]
    origin = origins[0]
    limit = round(config.max_image_mib * 2**20)
    # Parquet lists the mean size of a row group, which bounds the memory that reading it takes.
    most = _MOST_OF_MEAN * limit if origin.layout == "parquet" else limit
    refused = [
        Unread(source.problem)
        if source.problem
        else (refuse(file, config) if file.size > most else None)
        for file, source in zip(files, origins, strict=True)
    ]
    wanted = [source.place for source, why in zip(origins, refused, strict=True) if why is None]
    lost = _find_change(folder, path, origin) if wanted else None
    known = Found(path, "", origin.shard_size, origin.shard_version, "")
    images = FORMATS[origin.layout].read(Shard(folder, known, limit), origin.image, wanted)
    for file, why in zip(files, refused, strict=True):
        data: bytes | None = None
        if not (why or lost):
            try:
                data = next(images)
            except StopIteration:
                lost = CHANGED
            except Exception as error:
                lost = Unread(f"its shard is damaged: {explain_damage(error)}")
        if data is not None:
            file = file._replace(size=len(data))
            why = refuse(file, config)
        is_whole = data is not None and checksum_matches(data, file.checksum)
        yield file, why or lost or (data if data is not None and is_whole else CHANGED)


def _find_change(folder: str, path: str, origin: Origin) -> Unread | None:
    """Return why a shard can no longer be read, if so."""
    try:
        current = find_file(f"{folder.rstrip('/')}/{path}")
    except DataError:
        return Unread("its shard has gone since it was listed")
    # Backups by hard links, and volumes that are mounted anew, change only the other time.
    now = current and (current.size, current.version.split()[0])
    return None if now == (origin.shard_size, origin.shard_version.split()[0]) else CHANGED
