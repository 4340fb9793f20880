"""Images as NumPy arrays during ingest: seen as by a person, shrunk, measured and encoded.

Color profiles (ICC) that differ from sRGB are found, and pixels converted by them.
"""

import functools
import io

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, ImageCms, JpegImagePlugin

from components.images.check_result import CheckedImage
from components.images.jpeg_frame import ORIENTATION_TAG, walk_segments
from components.images.options import ALIASING, ImageOptions

Pixels = npt.NDArray[np.uint8]

_PNG_PLACES = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")

THUMBPRINT_SIDE = 32
"""Pixels. The images of CIFAR-10 keep all their detail."""

# Averaging all pixels takes a third of the time of decoding them. Sampling 16 of them per pixel of
# the picture takes 2 %.
_SAMPLED = 4 * THUMBPRINT_SIDE

# Profiles of printers take up to 3 MB.
_MOST_BYTES = 4 * 2**20
# Levels of 255. Variants of sRGB differ by as much in dark colors, Display P3 by 100. Encoding
# a JPEG anew would change more.
_SAME = 10
_SPACES = {"RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB", "CMYK": "CMYK"}

_SIGNATURE = b"ICC_PROFILE\0"
_APP2 = 0xE2

_GRID = np.stack(np.meshgrid(*[np.arange(0, 256, 15, np.uint8)] * 3), axis=-1).reshape(1, -1, 3)

# Ingest runs a thread per shard, with which OpenCV's threads would compete.
cv2.setNumThreads(1)


def as_seen(image: Image.Image, *, orientation: int, color: str = "srgb") -> Pixels:
    """Return the first frame upright, transparency on white, as [height, width, 3] RGB.

    16-bit gray is scaled to 8 bits. `color` is "srgb", or "stored" to ignore color profiles, as
    TensorFlow ignores them.
    """
    if color == "stored":
        image.info.pop("icc_profile", None)
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        gray = (deep >> 8).astype(np.uint8)
        gray[deep == image.info.get("transparency")] = 255
        image = Image.fromarray(gray)
    elif image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(to_srgb(layer), mask=layer.getchannel("A"))
    return turn(np.asarray(to_srgb(image)), orientation)


def find_orientation(data: bytes, image: Image.Image) -> int:
    """Return the orientation that Pillow finds, 1 to 8; 1 is upright."""
    if image.format == "PNG" and not any(name in data for name in _PNG_PLACES):
        return 1  # Pillow would decode the whole image to find out.
    try:
        orientation = int(image.getexif().get(ORIENTATION_TAG, 1))
    except Exception:  # Broken EXIF is common and no reason to lose an image.
        return 1
    return orientation if 1 <= orientation <= 8 else 1


def turn(pixels: Pixels, orientation: int) -> Pixels:
    """Turn [height, width, ...] upright, as `upright.turn_upright` does in the graph."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    rows, columns = (-1 if orientation in turned else 1 for turned in ((3, 4, 7, 8), (2, 3, 6, 7)))
    return np.ascontiguousarray(pixels[::rows, ::columns])


def shrink(pixels: Pixels, *, side: int) -> Pixels:
    """Resize [height, width] or [height, width, 3] so that the shorter side has `side` pixels.

    The graph does the same to images that ingest has not seen, see `canonicalize`.
    """
    height, width = pixels.shape[:2]
    factor = min(height, width) / side
    size = (max(side, round(width / factor)), max(side, round(height / factor)))
    method = cv2.INTER_AREA if factor >= ALIASING else cv2.INTER_LINEAR
    resized: Pixels = cv2.resize(pixels, size, interpolation=method)
    return resized


def mean_luminance(pixels: Pixels) -> float:
    """Return the mean luma (ITU-R BT.601) of gray or RGB pixels, 0 to 255."""
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if pixels.ndim == 3 else pixels
    return float(cv2.mean(gray)[0])


def to_jpeg(pixels: Pixels, *, quality: int) -> CheckedImage:
    """Encode gray [height, width] or RGB [height, width, 3] as JPEG with half chroma resolution."""
    gray = pixels.ndim == 2
    encoded: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(pixels[..., None] if gray else pixels),
        quality=quality,
        colorspace="GRAY" if gray else "RGB",
        colorsubsampling="Gray" if gray else "420",
    )
    height, width = pixels.shape[:2]
    channels = 1 if gray else 3
    return CheckedImage(encoded, "jpeg", height, width, channels, mean_luminance(pixels))


def store(pixels: Pixels, image: Image.Image, config: ImageOptions) -> CheckedImage:
    """Encode the RGB pixels of `image`, which cannot be kept, as `config` asks."""
    height, width, channels = pixels.shape
    if config.shrink and config.is_shrunk(width, height):
        return to_jpeg(shrink(pixels, side=config.shrink), quality=config.quality)
    buffer = io.BytesIO()
    if tables := getattr(image, "quantization", None):
        # With half the steps of the JPEG that it was, the second rounding adds little to the first.
        # Of all subsamplings only 4:2:0 stays the same when turned.
        table = [max(1, min(steps) // 2) for steps in zip(*tables.values(), strict=True)]
        sampling = 2 if JpegImagePlugin.get_sampling(image) == 2 else 0
        Image.fromarray(pixels).save(buffer, "JPEG", qtables=[table], subsampling=sampling)
        luminance = mean_luminance(pixels)
        return CheckedImage(buffer.getvalue(), "jpeg", height, width, channels, luminance)
    if config.transcode == "jpeg":
        return to_jpeg(pixels, quality=config.quality)
    # The default level takes four times as long, seconds for a photograph, and saves a fifth.
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return CheckedImage(buffer.getvalue(), "png", height, width, channels, mean_luminance(pixels))


def make_thumbprint(pixels: Pixels, options: ImageOptions, *, orientation: int = 1) -> bytes:
    """Stretch gray [height, width] or RGB [height, width, 3] to an upright gray square, in rows.

    Empty unless `options` look for near duplicates.
    """
    if not options.finds_near_duplicates:
        return b""
    height, width = pixels.shape[:2]
    if max(height, width) > _SAMPLED:
        size = (min(width, _SAMPLED), min(height, _SAMPLED))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_NEAREST)
    method = cv2.INTER_AREA if min(height, width) >= THUMBPRINT_SIDE else cv2.INTER_LINEAR
    small: Pixels = cv2.resize(pixels, (THUMBPRINT_SIDE, THUMBPRINT_SIDE), interpolation=method)
    gray: Pixels = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    return turn(gray, orientation).tobytes()


def to_srgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to sRGB by its profile, if that differs; else to RGB."""
    transform = find_transform(image)
    if transform is None:
        return image.convert("RGB")
    converted = ImageCms.applyTransform(image.convert(_SPACES[image.mode]), transform)
    assert converted is not None  # It would be if it were changed in place.
    return converted


# Bits of a channel that choose a cell of the tables, and pixels that are converted at once.
_CELL_BITS, _STRIP = 6, 2**15


def decode_converted(data: bytes, transform: ImageCms.ImageCmsTransform) -> Pixels:
    """Decode a JPEG, and convert it to sRGB, [height, width, 3], mostly within a level.

    Little CMS takes five times as long as these tables.

    Raises:
        ValueError: the JPEG is damaged.
    """
    pixels: Pixels = simplejpeg.decode_jpeg(data, "RGBX")
    tables = _make_tables(transform)
    height, width = pixels.shape[:2]
    rows = max(1, _STRIP // width)
    for start in range(0, height, rows):
        strip = pixels[start : start + rows]
        found = strip.view(np.uint32)[..., 0] >> 2
        cells = found & 0x3F | found >> 2 & 0xFC0 | found >> 4 & 0x3F000
        more, less = (
            np.take(table, cells, mode="clip").view(np.uint8).reshape(strip.shape)
            for table in tables
        )
        strip[:] = cv2.subtract(cv2.add(strip, more), less)
    converted: Pixels = cv2.cvtColor(pixels, cv2.COLOR_RGBA2RGB)
    return converted


@functools.lru_cache(16)
def _make_tables(
    transform: ImageCms.ImageCmsTransform,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return how much to add to, and subtract from, the pixels of each cell, as RGBX."""
    levels = np.arange(2, 256, 256 >> _CELL_BITS, np.uint8)
    # The first channel varies fastest.
    colors = np.stack(np.meshgrid(levels, levels, levels, indexing="ij")[::-1], axis=-1)
    colors = colors.reshape(len(levels), -1, 3)
    seen = np.asarray(ImageCms.applyTransform(Image.fromarray(colors), transform))
    white = np.zeros((*colors.shape[:2], 1), np.uint8)
    pairs = (cv2.subtract(seen, colors), cv2.subtract(colors, seen))
    more, less = (
        np.concatenate([change, white], axis=-1).view(np.uint32).ravel() for change in pairs
    )
    return more, less


def find_transform(image: Image.Image) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from the profile of an image to sRGB.

    Return None for an image without a profile or with one of sRGB, gray, broken or above 4 MiB.
    """
    profile, space = image.info.get("icc_profile"), _SPACES.get(image.mode)
    return make_transform(profile, space) if isinstance(profile, bytes) and space else None


@functools.lru_cache(16)  # All photographs of a camera have the same profile.
def make_transform(profile: bytes, space: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform to sRGB from a profile of `space`, "RGB" or "CMYK"; None as above."""
    if not 0 < len(profile) <= _MOST_BYTES:
        return None
    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if opened.profile.xcolor_space.strip() != space:
            return None
        transform = ImageCms.buildTransform(opened, ImageCms.createProfile("sRGB"), space, "RGB")
        grid = Image.fromarray(_GRID)
        seen = ImageCms.applyTransform(grid, transform) if space == "RGB" else None
    except Exception:  # Little CMS and Pillow raise several classes for broken profiles.
        return None
    if seen is None:
        return transform
    differences = np.abs(np.asarray(seen).astype(int) - _GRID)
    return transform if differences.max() > _SAME else None


def read_jpeg_profile(data: bytes) -> bytes:
    """Return the profile of a JPEG; empty without one, or if parts of it are missing.

    Source: ICC.1:2022, B.4.
    """
    parts = []
    for marker, place in walk_segments(data):
        if marker == _APP2 and data.startswith(_SIGNATURE, place + 4):
            end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
            parts.append(data[place + 4 + len(_SIGNATURE) : end])
    whole = len(parts) > 0 and all(len(part) > 1 and part[1] == len(parts) for part in parts)
    return b"".join(part[2:] for part in sorted(parts)) if whole else b""


def drop_png_profile(data: bytes) -> bytes:
    """Return a PNG without its profile, which Pillow does not open if it inflates to megabytes."""
    place = data.find(b"iCCP") - 4
    if place < 0 or not data.startswith(b"\x89PNG"):
        return data
    size = int.from_bytes(data[place : place + 4], "big")
    return data[:place] + data[place + 12 + size :]
