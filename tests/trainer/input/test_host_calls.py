import weakref
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf

from components.images.canonical import decode
from components.images.options import TransformConfig
from components.trainer.input.host_calls import BatchMemory, HostDecoder, forget_calls, guard
from tests.pictures import encode, picture

SIZE = 33
Storage = Literal["jpeg", "png", "raw"]


def jpeg(mode: str = "RGB", **options: Any) -> bytes:
    return encode(picture(1, height=SIZE, width=SIZE).convert(mode), "JPEG", **options)


def stored(storage: Storage, size: int = SIZE) -> bytes:
    image = picture(2, height=size, width=size)
    return image.tobytes() if storage == "raw" else encode(image, storage.upper())


# Storage, and files of that kind; another one beside them.
FILES: dict[str, tuple[Storage, bytes]] = {
    "4:4:4": ("jpeg", jpeg(subsampling=0)),
    "4:2:2": ("jpeg", jpeg(subsampling=1)),
    "4:2:0": ("jpeg", jpeg(subsampling=2)),
    "gray": ("jpeg", jpeg("L")),
    "progressive": ("jpeg", jpeg(progressive=True)),
    "low quality": ("jpeg", jpeg(quality=5)),
    "with a warning: truncated": ("jpeg", jpeg()[:-40]),
    "PNG": ("png", stored("png")),
    "raw": ("raw", stored("raw")),
}


@pytest.mark.parametrize(("storage", "file"), FILES.values(), ids=FILES.keys())
def test_pixels_are_those_of_the_served_graph(storage: Storage, file: bytes) -> None:
    config = TransformConfig(size=SIZE, storage=storage)
    files = [file, stored(storage)]
    try:
        expected = decode(tf.constant(files), config).numpy()
    except tf.errors.InvalidArgumentError:
        with pytest.raises(tf.errors.InvalidArgumentError):
            HostDecoder(config).decode(files)
    else:
        np.testing.assert_array_equal(HostDecoder(config).decode(files), expected)


@pytest.mark.parametrize("storage", ["jpeg", "png", "raw"])
def test_another_size_and_an_unreadable_image_are_errors(storage: Storage) -> None:
    decoder = HostDecoder(TransformConfig(size=SIZE, storage=storage))
    for file in (stored(storage, 16), stored(storage, 64), b"no image at all"):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"33|reshape|Unkno"):
            decoder.decode([file])


def test_a_tensor_that_took_over_a_batch_keeps_its_pixels() -> None:
    memory = BatchMemory()

    def batch(number: Any) -> Any:
        pixels = memory.take((64, 64))
        pixels[:] = number
        return pixels

    numbers = tf.data.Dataset.range(200)
    batches = numbers.map(lambda n: tf.numpy_function(batch, [n], tf.uint8), 4).prefetch(2)
    kept = list(batches)
    assert all((pixels.numpy() == number).all() for number, pixels in enumerate(kept))
    for number, pixels in enumerate(batches):
        assert (pixels.numpy() == number).all()
    assert len(memory._memory) < 400


def test_unused_memory_is_taken_again() -> None:
    memory = BatchMemory()
    first, second = memory.take((1, 5, 5, 3)), memory.take((1, 5, 5, 3))
    first[:], second[:] = 1, 2
    assert second.ctypes.data % 64 == 0
    address, part = first.ctypes.data, first[0, 1:2]
    del first
    # A view of it is still in use.
    assert memory.take((1, 5, 5, 3)).ctypes.data != address
    assert (part == 1).all()
    del part
    assert memory.take((1, 5, 5, 3)).ctypes.data == address
    assert (second == 2).all()
    assert memory.take((5, 8)).shape == (5, 8)


def test_tensorflow_does_not_keep_what_a_forgotten_call_holds() -> None:
    class Held:
        def count(self, number: int) -> int:
            return number + 1

    held = Held()
    kept, called = weakref.ref(held), guard(held.count)
    assert tf.numpy_function(called, [np.int64(1)], tf.int64).numpy() == 2
    del held
    assert kept()
    forget_calls()
    assert not kept()
