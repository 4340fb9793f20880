from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simplejpeg

from pipeline_def.data.jpeg_stack import decode_joined
from tests.pictures import picture

SIDE = 32
HEADER = 623


def jpeg(number: int, *, colours: str = "444", quality: int = 95, side: int = SIDE) -> bytes:
    image = np.array(picture(number, height=side, width=side))
    encoded: bytes = simplejpeg.encode_jpeg(image, quality=quality, colorsubsampling=colours)
    return encoded


def join(files: list[bytes], side: int = SIDE) -> tuple[Any, list[int]]:
    out = np.zeros((len(files), side, side, 3), np.uint8)
    return out, decode_joined([memoryview(file) for file in files], out)


def one_by_one(files: list[bytes]) -> Any:
    return np.stack([simplejpeg.decode_jpeg(file, "RGB") for file in files])


@pytest.mark.parametrize("colours", ["444", "422"])
@pytest.mark.parametrize("side", [8, 32, 40])
def test_joined_images_have_the_pixels_of_each_by_itself(colours: str, side: int) -> None:
    files = [jpeg(number, colours=colours, side=side) for number in range(19)]
    images, others = join(files, side)
    assert others == []
    np.testing.assert_array_equal(images, one_by_one(files))


def test_more_images_than_the_decoder_takes_rows() -> None:
    files = [jpeg(number) for number in range(3)] * 700
    images, others = join(files)
    assert others == []
    np.testing.assert_array_equal(images, np.tile(one_by_one(files[:3]), (700, 1, 1, 1)))


def test_images_of_another_encoder_are_left_to_the_caller() -> None:
    files = [jpeg(number, quality=80 if number in (3, 7) else 95) for number in range(9)]
    images, others = join(files)
    assert others == [3, 7]
    kept = np.setdiff1d(np.arange(9), others)
    np.testing.assert_array_equal(images[kept], one_by_one(files)[kept])


WHOLE = jpeg(1)
CANNOT_BE_JOINED = {
    "colours halved from row to row": jpeg(1, colours="420"),
    "gray": simplejpeg.encode_jpeg(np.zeros((SIDE, SIDE, 1), np.uint8), colorspace="GRAY"),
    "another size": jpeg(1, side=40),
    "restarts of its own": WHOLE[: HEADER - 14] + b"\xff\xdd\0\4\0\4" + WHOLE[HEADER - 14 :],
    "progressive": WHOLE.replace(b"\xff\xc0", b"\xff\xc2"),
    "ends in its header": WHOLE[:100],
    "no JPEG at all": b"RIFF and so on",
    "empty": b"",
}


@pytest.mark.parametrize("name", CANNOT_BE_JOINED)
def test_what_cannot_be_joined_is_left_to_the_caller(name: str) -> None:
    assert join([CANNOT_BE_JOINED[name]] * 3)[1] == [0, 1, 2]


def broken(content: bytes) -> bytes:
    """Return `WHOLE` with other bytes between its header and its end."""
    return WHOLE[:HEADER] + content + WHOLE[-2:]


SCAN = WHOLE[HEADER:-2]
BROKEN = {
    "too short": broken(SCAN[:-30]),
    "too long": broken(SCAN + SCAN),
    "a restart too many": broken(SCAN + b"\xff\xd1"),
    "two images": broken(SCAN + b"\xff\xd1" + SCAN),
    "nothing": broken(b""),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("place", [1, 4])
def test_one_broken_image_spoils_no_other(name: str, place: int) -> None:
    files = [jpeg(number) for number in range(6)]
    expected = one_by_one(files)
    files[place] = BROKEN[name]
    images, others = join(files)
    assert place in others
    kept = np.setdiff1d(np.arange(6), others)
    np.testing.assert_array_equal(images[kept], expected[kept])
