from typing import Any

import numpy as np
import pytest
import simplejpeg

from components.images.jpeg_frame import read_frame, upper_rows
from tests.pictures import encode, picture

HEIGHT, WIDTH = 150, 90


def jpeg(mode: str = "RGB", **options: Any) -> bytes:
    return encode(picture(1, height=HEIGHT, width=WIDTH).convert(mode), "JPEG", **options)


# File, rows of a coded unit, and whether the JPEG is sequential.
FILES = {
    "4:4:4": (jpeg(subsampling=0), 8, True),
    "4:2:2": (jpeg(subsampling=1), 8, True),
    "4:2:0": (jpeg(subsampling=2), 16, True),
    "gray": (jpeg("L"), 8, True),
    "with restarts": (jpeg(restart_marker_rows=1), 16, True),
    "with metadata": (jpeg(exif=b"Exif\0\0" + bytes(40_000)), 16, True),
    "progressive": (jpeg(progressive=True), 16, False),
}


@pytest.mark.parametrize("name", FILES)
def test_the_upper_rows_have_the_same_pixels(name: str) -> None:
    file, unit_rows, sequential = FILES[name]
    frame = read_frame(memoryview(file))
    assert frame is not None
    assert frame[:4] == (HEIGHT, WIDTH, unit_rows, sequential)
    whole = simplejpeg.decode_jpeg(file, "RGB")
    for rows in (1, 8, 31, 64, 100, HEIGHT):
        upper = upper_rows(memoryview(file), frame, rows)
        found = simplejpeg.decode_jpeg(upper, "RGB", strict=False)
        np.testing.assert_array_equal(found[:rows], whole[:rows])
        assert len(found) <= rows + 2 * unit_rows or not sequential or len(found) == HEIGHT


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"\xff\xd8",
        encode(picture(1), "PNG"),
        jpeg()[2:],
        jpeg()[:60],
        b"\xff\xd8\xff" + jpeg()[2:],
        jpeg().replace(b"\xff\xc0", b"\xff\xc9"),
        jpeg().replace(b"\x08" + HEIGHT.to_bytes(2, "big"), b"\x08\0\0", 1),
    ],
    ids=["empty", "start only", "PNG", "no start", "truncated", "filled", "arithmetic", "no rows"],
)
def test_files_without_a_plain_frame(file: bytes) -> None:
    assert read_frame(file) is None
