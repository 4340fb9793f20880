"""The formats of shards, and how they are told by the names of files."""

import posixpath
import re
from collections.abc import Iterable

from components.contract.errors import DataError
from components.ingest.datasets import columnar, example_records, webdataset
from components.ingest.datasets.record import Format
from components.ingest.source.folder_layout import PICTURES
from components.storage.folder_listing import Found

FORMATS: dict[str, Format] = {
    "webdataset": webdataset.FORMAT,
    "parquet": columnar.FORMAT,
    "arrow": columnar.FORMAT,
    "tfrecord": example_records.FORMAT,
}
"""Layout → its functions."""

_NAMES = {
    "webdataset": re.compile(r"\.(tar|tar\.gz|tgz)$"),
    "parquet": re.compile(r"\.parquet$"),
    "arrow": re.compile(r"\.(arrow|feather)$"),
    "tfrecord": re.compile(
        r"(\.tfrec|tfrecords?)([-_.]?\d+)*(-of-\d+)?(\.gz)?$|-\d{5,}-of-\d{5,}(\.gz)?$"
    ),
}
_OTHER_FORMATS = re.compile(r"\.?(array_record|riegeli|bagz)([-.]|$)")


def find_shards(found: Iterable[Found]) -> dict[str, list[Found]]:
    """Return layout → files whose names are those of its shards."""
    shards: dict[str, list[Found]] = {}
    for entry in found:
        name = posixpath.basename(entry.path).lower()
        # Five searches for each of a million images would take as long as the rest of a listing.
        if name.endswith(PICTURES):
            continue
        layout = next((key for key, known in _NAMES.items() if known.search(name)), None)
        if _OTHER_FORMATS.search(name):
            raise DataError(
                f"{entry.path} is in a format that cannot be read without its own library: "
                f"prepare the data set as TFRecord (TFDS: file_format='tfrecord')."
            )
        if layout:
            shards.setdefault(layout, []).append(entry)
    return shards
