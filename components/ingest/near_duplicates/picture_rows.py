"""The small pictures of all images, in a file per plan, as workers write and ingest reads them."""

import tempfile
from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from components.contract.artifact_files import open_file
from components.images.check_result import CheckedImage
from components.images.thumbprint import SIDE
from components.ingest.digests import Digests
from components.ingest.ingest_report import PlanReport
from components.ingest.plan_facts import PICTURES, plan_path
from components.ingest.shard_plan import ShardPlan
from components.records.shard_files import replace_file

ROW_BYTES = SIDE * SIDE + 1
"""A picture, and the shorter side of its image, pixels, at most 255."""

NO_PICTURE = bytes(ROW_BYTES)

Rows = NDArray[np.uint8]


def picture_row(image: CheckedImage) -> bytes:
    """Return the picture of an image, and the shorter side of the image."""
    if not image.thumbprint:
        return NO_PICTURE
    return image.thumbprint + bytes([min(image.height, image.width, 255)])


def write_pictures(examples_uri: str, plan: ShardPlan, rows: bytes | bytearray) -> None:
    """Write the rows of the files of a plan, which reach ingest with any Beam runner."""
    replace_file(examples_uri, plan_path(examples_uri, plan) + PICTURES, bytes(rows))


def read_rows(path: str) -> Rows:
    """Read the rows of the files of a plan, see `plan_path`."""
    with open_file(path + PICTURES, "rb") as file:
        return np.frombuffer(file.read(), np.uint8).reshape(-1, ROW_BYTES)


def read_pictures(
    examples_uri: str, reports: Sequence[PlanReport], repeated: Set[str]
) -> tuple[Digests, Rows]:
    """Return the distinct digests of all images, and the row of each.

    Only the digests in `repeated` may occur several times.

    The rows, 1,025 bytes each, are mapped from a temporary file, so that they need no memory once
    `release_pages` has been called.
    """
    digests, seen = Digests(), set[str]()
    with tempfile.TemporaryFile() as joined:
        for report in reports:
            kept = []
            for number, sha256 in enumerate(report.digests):
                if sha256 and sha256 not in seen:
                    if sha256 in repeated:
                        seen.add(sha256)
                    digests.append(sha256)
                    kept.append(number)
            joined.write(read_rows(plan_path(examples_uri, report.plan))[kept].tobytes())
        joined.flush()
        shape = (len(digests), ROW_BYTES)
        if not digests:
            return digests, np.empty(shape, np.uint8)  # An empty file cannot be mapped.
        return digests, np.memmap(joined, np.uint8, "r", shape=shape)
