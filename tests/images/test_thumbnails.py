import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components.images.thumbnails import SMALLEST_HEAT_MAP, Thumbnail, lay_over, make_thumbnail
from tests.pictures import encode, png_bomb, scene, turned

WIDTH, HEIGHT = 300, 200


def pixels_of(shown: Thumbnail | None) -> np.ndarray[Any, Any]:
    assert shown is not None
    image = Image.open(io.BytesIO(shown.jpeg))
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (shown.width, shown.height))
    return np.asarray(image).astype(int)


def photograph() -> Image.Image:
    """Red on the left, green on the right."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "red")
    image.paste("lime", (WIDTH // 2, 0, WIDTH, HEIGHT))
    return image


RED, LIME, WHITE, GRAY = (255, 0, 0), (0, 255, 0), (255, 255, 255), (128, 128, 128)
FRAMES = {"save_all": True, "append_images": [Image.new("RGB", (9, 9))]}
DEEP = np.repeat(np.array([[65535, 32768]], np.uint16), WIDTH // 2, axis=1).repeat(HEIGHT, axis=0)
CLEAR = photograph()
CLEAR.putalpha(CLEAR.getchannel("R"))
SEEN = {
    "JPEG": (encode(photograph(), "JPEG"), RED, LIME),
    "PNG": (encode(photograph(), "PNG"), RED, LIME),
    "WebP": (encode(photograph(), "WEBP"), RED, LIME),
    "CMYK": (encode(photograph().convert("CMYK"), "JPEG"), RED, LIME),
    "palette": (encode(photograph().convert("P"), "PNG"), RED, LIME),
    "transparency is white": (encode(CLEAR, "PNG"), RED, WHITE),
    "the first frame": (encode(photograph(), "GIF", **FRAMES), RED, LIME),
    "16 bits": (encode(Image.fromarray(DEEP), "PNG"), WHITE, GRAY),
    "broken EXIF data": (encode(photograph(), "PNG", exif=b"garbage!"), RED, LIME),
    "turned by half": (encode(photograph(), "JPEG", exif=turned(3)), LIME, RED),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_thumbnail_shows_what_a_person_sees(name: str) -> None:
    encoded, left, right = SEEN[name]
    pixels = pixels_of(make_thumbnail(encoded))
    assert pixels.shape == (64, 96, 3)
    np.testing.assert_allclose(pixels[32, 20], left, atol=6)
    np.testing.assert_allclose(pixels[32, 76], right, atol=6)


NOTHING_TO_SEE = {
    "empty": b"",
    "text": b"Dear diary,\n" * 100,
    "a bomb that Pillow refuses": png_bomb(60_000, 60_000),
    "a bomb that Pillow would decode": png_bomb(10_000, 8_000),
    "header only": png_bomb(300, 200),
    "32 bits of no known range": encode(Image.new("F", (9, 9), 0.5), "TIFF"),
    "tables only": encode(photograph(), "JPEG")[:200],
}


@pytest.mark.parametrize("name", NOTHING_TO_SEE)
def test_unreadable_files_have_no_thumbnail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The header must be checked before memory is allocated.
    create, asked = vars(Image)["core"].new, [0]

    def new(mode: str, size: tuple[int, int]) -> Any:
        asked.append(size[0] * size[1])
        return create(mode, size)

    monkeypatch.setattr("PIL.Image.core.new", new)
    assert make_thumbnail(NOTHING_TO_SEE[name]) is None
    assert max(asked) <= 40e6


def test_no_program_is_started_for_postscript(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *given: started.append(given))
    assert make_thumbnail(encode(photograph(), "EPS")) is None
    assert not started


@pytest.mark.parametrize("kind", ["JPEG", "progressive JPEG", "PNG", "GIF", "TIFF"])
def test_the_readable_part_of_a_broken_image_is_shown(kind: str) -> None:
    options = {"progressive": True} if " " in kind else {}
    data = encode(scene(0, (WIDTH, HEIGHT)), kind.split()[-1], **options)
    damaged = bytearray(data)
    damaged[len(data) * 9 // 10] ^= 0xFF
    whole = pixels_of(make_thumbnail(data))
    for broken in (data[: len(data) * 7 // 10], *([bytes(damaged)] if kind == "PNG" else [])):
        part = pixels_of(make_thumbnail(broken))
        assert part.shape == whole.shape
        # A GIF starts with all colors, a progressive JPEG with rough ones.
        top = np.abs(part - whole)[: len(whole) // 4].mean()
        assert top < (50 if "progressive" in options else 3)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        pytest.param((20, 10), (20, 10), id="not enlarged"),
        pytest.param((96, 96), (96, 96), id="exactly"),
        pytest.param((5000, 1), (96, 1), id="a line"),
        pytest.param((2000, 1500), (96, 72), id="large"),
    ],
)
def test_the_longer_side_is_limited(size: tuple[int, int], shown: tuple[int, int]) -> None:
    for kind in ("JPEG", "PNG"):
        pixels = pixels_of(make_thumbnail(encode(Image.new("RGB", size, "red"), kind)))
        assert pixels.shape[1::-1] == shown
        np.testing.assert_allclose(pixels[0, 0], RED, atol=6)


def test_hot_is_bright_and_cold_is_dark() -> None:
    heat = np.zeros((8, 8), np.float32)
    heat[:, 4:] = 1
    shown = lay_over(heat, np.full((8, 8, 3), 128, np.uint8))
    assert shown.shape == (SMALLEST_HEAT_MAP, SMALLEST_HEAT_MAP, 3)
    cold, hot = shown[:, :24].mean(), shown[:, -24:].mean()
    assert hot > 2 * cold
    # The image shows through both.
    lighter = lay_over(heat, np.full((8, 8, 3), 255, np.uint8))
    assert (lighter.astype(int) - shown > 20).all()
    large = np.zeros((200, 200, 3), np.uint8)
    assert lay_over(heat, large).shape == large.shape
