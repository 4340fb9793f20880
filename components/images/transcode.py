"""Images as NumPy arrays during ingest: seen as by a person, shrunk, measured and encoded."""

import io

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, JpegImagePlugin

from components.images.check_result import CheckedImage
from components.images.jpeg_frame import ORIENTATION_TAG
from components.images.options import ALIASING, ImageOptions

Pixels = npt.NDArray[np.uint8]

_PNG_PLACES = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")

THUMBPRINT_SIDE = 32
"""Pixels. The images of CIFAR-10 keep all their detail."""

# Averaging all pixels takes a third of the time of decoding them. Sampling 16 of them per pixel of
# the picture takes 2 %.
_SAMPLED = 4 * THUMBPRINT_SIDE

# Ingest runs a thread per shard, with which OpenCV's threads would compete.
cv2.setNumThreads(1)


def as_seen(image: Image.Image, *, orientation: int) -> Pixels:
    """Return the first frame upright, transparency on white, as [height, width, 3] RGB.

    16-bit gray is scaled to 8 bits. Color profiles are ignored, as TensorFlow ignores them.
    """
    if image.mode.startswith("I"):
        deep = np.asarray(image)
        gray = (deep >> 8).astype(np.uint8)
        gray[deep == image.info.get("transparency")] = 255
        image = Image.fromarray(gray)
    elif image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    return turn(np.asarray(image.convert("RGB")), orientation)


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


def shrink(pixels: Pixels, *, side: int, shape: tuple[int, int] | None = None) -> Pixels:
    """Resize [height, width] or [height, width, 3] so that the shorter side has `side` pixels.

    The graph does the same to images that ingest has not seen, see `canonicalize`. `shape` is the
    height and width of the image if it was decoded at a smaller scale.
    """
    height, width = shape or pixels.shape[:2]
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
    buffer, kind = io.BytesIO(), "png"
    if tables := getattr(image, "quantization", None):
        # With half the steps of the JPEG that it was, the second rounding adds little to the first.
        # Of all subsamplings only 4:2:0 stays the same when turned.
        table = [max(1, min(steps) // 2) for steps in zip(*tables.values(), strict=True)]
        sampling = 2 if JpegImagePlugin.get_sampling(image) == 2 else 0
        Image.fromarray(pixels).save(buffer, "JPEG", qtables=[table], subsampling=sampling)
        kind = "jpeg"
    else:
        # The default level takes four times as long, seconds for a photograph, and saves a fifth.
        Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return CheckedImage(buffer.getvalue(), kind, height, width, channels, mean_luminance(pixels))


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
