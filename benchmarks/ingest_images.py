"""Images for the ingest benchmark: unique copies of yours."""

import struct
from pathlib import Path

from benchmarks.peers.ingest_peers import list_files
from components.contract.errors import DataError
from components.images.check import check_image
from components.ingest.config import IngestConfig


def make_copies(data: str, target: str, count: int, *, side: int | None = None) -> None:
    """Write `count` JPEGs made from those of `data`, each with a unique comment.

    Identical files would be duplicates, which ingest reads once.

    Args:
        data: folder of `label/image.jpg`.
        target: a new folder.
        count: number of files.
        side: shrink them to so many pixels of the shorter side; None: as they are.

    Raises:
        DataError: there is no JPEG in `data`.
    """
    originals = [
        (label, encoded)
        for path, label in list_files(data)
        if (encoded := Path(path).read_bytes()).startswith(b"\xff\xd8")
    ]
    if not originals:
        raise DataError(f"{data} has no JPEG in a folder of its label, as label/image.jpg.")
    if side:
        originals = [(label, _small(encoded, side)) for label, encoded in originals]
    for number in range(count):
        label, encoded = originals[number % len(originals)]
        comment = b"%020d" % number
        segment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
        path = Path(target, label, f"{number:07d}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded[:2] + segment + encoded[2:])


def _small(encoded: bytes, side: int) -> bytes:
    return check_image(encoded, IngestConfig(shrink=side, quality=88)).encoded
