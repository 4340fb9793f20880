import functools
import io
import itertools
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from components.images.canonical import canonicalize, decode
from components.images.check import check_image
from components.images.options import ImageOptions, TransformConfig
from components.images.portable import prepare
from tests.pictures import encode, picture

Fit = Literal["crop", "stretch"]


@functools.cache
def graph(config: TransformConfig) -> Any:
    spec = tf.TensorSpec([None], tf.string)
    return tf.function(
        lambda files: canonicalize(files, config), input_signature=[spec], autograph=False
    )


def in_tf_data(encoded: tf.Tensor, config: TransformConfig) -> tf.Tensor:
    options = tf.data.Options()
    # Rewriting the graph takes longer than running it.
    options.experimental_optimization.apply_default_optimizations = False
    dataset = tf.data.Dataset.from_tensors(encoded).map(graph(config))
    return dataset.with_options(options).get_single_element()


@pytest.mark.slow
def test_every_format_becomes_a_jpeg_of_the_size_and_such_a_jpeg_is_kept() -> None:
    image = picture(1, height=60, width=80)
    kinds = list(itertools.product(["JPEG", "PNG", "BMP", "GIF"], ["RGB", "L"]))
    files = [encode(image.convert(mode), kind) for kind, mode in kinds]
    small = [encode(picture(1, height=32, width=32), kind) for kind in ("JPEG", "PNG")]
    canonical = in_tf_data(tf.constant(files + small), TransformConfig(size=32)).numpy().tolist()
    assert canonical[-2] == small[0]
    for kind, data in zip([*kinds, "kept", "small PNG"], canonical, strict=True):
        opened = Image.open(io.BytesIO(data))
        assert (opened.format, opened.mode, opened.size) == ("JPEG", "RGB", (32, 32)), kind


def expected_letterbox(image: Image.Image) -> Image.Image:
    scale = 32 / max(image.size)
    width, height = (max(1, round(scale * side)) for side in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    color = np.round(np.asarray(resized).mean(axis=(0, 1))).astype(int).tolist()
    whole = Image.new("RGB", (32, 32), tuple(color))
    whole.paste(resized, ((32 - width) // 2, (32 - height) // 2))
    return whole


@pytest.mark.slow
@pytest.mark.parametrize(("fit", "box"), [("crop", (10, 0, 70, 60)), ("stretch", (0, 0, 80, 60))])
def test_pixels_match_pillow(fit: Fit, box: tuple[int, int, int, int]) -> None:
    image = picture(1, height=60, width=80)
    config = TransformConfig(size=32, fit=fit, quality=100)
    canonical = canonicalize(tf.constant([encode(image, "PNG")]), config)
    pixels = decode(canonical, TransformConfig(size=32)).numpy()[0].astype(int)
    expected = image.crop(box).resize((32, 32), Image.Resampling.BILINEAR)
    # JPEG at quality 100 is a few levels off; another crop or no antialiasing would be tens.
    assert np.abs(pixels - np.asarray(expected)).max() <= 6


# Height and width of an image, and its rows and columns in a letterbox of 32 x 32 pixels.
LETTERBOXES = {
    "portrait: bars left and right": (80, 60, slice(0, 32), slice(4, 28)),
    "landscape: bars above and below": (60, 80, slice(4, 28), slice(0, 32)),
    "small: enlarged": (5, 10, slice(8, 24), slice(0, 32)),
    "an odd bar: the extra row is below": (31, 32, slice(0, 31), slice(0, 32)),
    "a line keeps one pixel": (1, 1000, slice(15, 16), slice(0, 32)),
    "a row that would round to nothing": (3, 5000, slice(15, 16), slice(0, 32)),
}


@pytest.mark.slow
def test_a_letterbox_shows_the_whole_image_in_its_shape() -> None:
    images = [picture(1, height=h, width=w) for h, w, *_ in LETTERBOXES.values()]
    config = TransformConfig(size=32, fit="letterbox", storage="raw")
    # One call, as each traces a graph.
    canonical = in_tf_data(tf.constant([encode(i, "PNG") for i in images]), config)
    letterboxes = decode(canonical, config).numpy().astype(int)
    for pixels, image, (name, (_, _, *inside)) in zip(
        letterboxes, images, LETTERBOXES.items(), strict=True
    ):
        assert np.abs(pixels - np.asarray(expected_letterbox(image))).max() <= 1, name
        in_bars = np.ones((32, 32), bool)
        in_bars[tuple(inside)] = False
        mean = pixels[tuple(inside)].mean(axis=(0, 1))
        assert np.abs(pixels[in_bars] - mean).max(initial=0) <= 0.5, name


def test_an_empty_batch_stays_empty() -> None:
    assert canonicalize(tf.zeros([0], tf.string), TransformConfig(size=32)).shape == [0]


def stored_pixels(*files: bytes) -> Any:
    """Return the graph's pixels of files of 32 x 24 pixels, [files, 24, 24, 3]."""
    config = TransformConfig(size=24, storage="raw")
    return decode(canonicalize(tf.constant(files), config), config).numpy().astype(int)


def test_pixels_of_unusual_images_in_the_served_graph() -> None:
    """Served bytes have not been through ingest; `docs/how-to/serve.md` lists the differences."""
    image = picture(1)
    deep = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    beneath = image.copy()
    beneath.putalpha(Image.linear_gradient("L").resize(image.size))
    numbers = np.asarray(image.convert("P"))
    jpeg = encode(image, "JPEG")
    frames = [image.convert("P"), picture(2, colour="blue").convert("P")]
    seen: dict[bytes, Any] = {
        encode(image.convert("L"), "PNG"): image.convert("L").convert("RGB"),
        encode(deep, "PNG"): image.convert("L").convert("RGB"),
        encode(image.convert("P"), "PNG"): image.convert("P").convert("RGB"),
        encode(frames[0], "GIF", save_all=True, append_images=frames[1:]): frames[0].convert("RGB"),
        jpeg: Image.open(io.BytesIO(jpeg)),
        encode(beneath, "PNG"): image,
        encode(image.convert("P"), "BMP"): np.stack([numbers] * 3, axis=-1),
    }
    expected = np.stack([np.asarray(pixels) for pixels in seen.values()])[:, :, 4:28]
    # Two decoders of JPEGs round differently.
    assert np.abs(stored_pixels(*seen) - expected).max() <= 1


def test_decode_refuses_another_size() -> None:
    data = tf.constant([encode(picture(1, height=16, width=32), "JPEG")])
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode(data, TransformConfig(size=32))


@pytest.mark.parametrize("storage", ["png", "raw"])
def test_png_and_raw_are_lossless(storage: Literal["png", "raw"]) -> None:
    image = picture(1, height=32, width=32)
    config = TransformConfig(size=32, storage=storage)
    canonical = canonicalize(tf.constant([encode(image, "PNG")]), config)
    np.testing.assert_array_equal(decode(canonical, config)[0], np.asarray(image))
    if storage == "raw":
        assert canonical.numpy()[0] == image.tobytes()


def photograph(seed: int, height: int, width: int) -> bytes:
    """Encode noise of all scales, as in a photograph."""
    random = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 128.0)
    for scale in (2, 4, 16, 64):
        noise = random.normal(0, 20, (height // scale + 1, width // scale + 1, 3))
        pixels += noise.repeat(scale, 0).repeat(scale, 1)[:height, :width]
    return encode(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), "JPEG", quality=92)


@pytest.mark.parametrize(("shrink", "size"), [(112, 96), (96, 96), (200, 96), (48, 48)])
def test_the_graph_shrinks_as_ingest_does(shrink: int, size: int) -> None:
    """Else the served model would see sharper images than it was trained on."""
    options = ImageOptions(shrink=shrink)
    files = [photograph(seed, *shape) for seed, shape in enumerate([(375, 500), (500, 333)])]
    config = TransformConfig(size=size, storage="png")
    ingested = [check_image(file, options).encoded for file in files]
    trained, served, unaware = (
        decode(canonicalize(tf.constant(encoded), config, ingest=ingest), config)
        .numpy()
        .astype(int)
        for encoded, ingest in ((ingested, options), (files, options), (files, None))
    )
    np.testing.assert_array_equal(
        trained, decode(canonicalize(tf.constant(ingested), config), config)
    )
    assert np.abs(served - trained).mean() < 2 < np.abs(unaware - trained).mean()


def test_the_graph_stores_a_shrunk_image_of_the_right_size_as_ingest_does() -> None:
    """Without encoding it a second time."""
    file = photograph(0, 96, 96)
    options, config = ImageOptions(shrink=32), TransformConfig(size=32, quality=20)
    encoded = tf.constant([check_image(file, options).encoded, file])
    trained, served = canonicalize(encoded, config, ingest=options).numpy()
    assert abs(len(trained) - len(served)) < 0.1 * len(trained)
    pixels = decode(tf.constant([trained, served]), config).numpy().astype(int)
    assert np.abs(pixels[0] - pixels[1]).mean() < 2


# As it is; smaller; larger by a whole and by another factor; flat and tall.
SIZES = ((30, 30), (20, 17), (60, 90), (101, 131), (1, 40))


@pytest.mark.parametrize(
    ("options", "ingest", "difference"),
    [
        ({"fit": "crop", "storage": "png"}, {}, 0),
        ({"fit": "stretch", "storage": "png"}, {}, 0),
        ({"fit": "letterbox", "storage": "png"}, {}, 0),
        # The losses of JPEG are left out: levels of 255 on average.
        ({"fit": "crop", "storage": "jpeg"}, {}, 1.5),
        ({"fit": "letterbox", "storage": "jpeg"}, {"shrink": 40}, 4),
        ({"fit": "crop", "storage": "raw"}, {"shrink": 100, "quality": 80}, 3),
    ],
)
@pytest.mark.slow
def test_the_preparation_for_other_runtimes(
    options: dict[str, Any], ingest: dict[str, Any], difference: float
) -> None:
    config, shrinking = TransformConfig(size=30, **options), ImageOptions(**ingest)
    for height, width in SIZES:
        image = np.asarray(picture(3, height=130, width=170))[:height, :width]
        file = tf.io.encode_png(image)[tf.newaxis]
        expected = decode(canonicalize(file, config, ingest=shrinking), config).numpy()
        prepared = prepare(image[np.newaxis], config, ingest=shrinking).numpy()
        assert np.abs(prepared.astype(int) - expected).mean() <= difference
