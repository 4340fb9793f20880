from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from components.contract import example
from components.contract.errors import UserError
from components.images.canonical import decode
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data import cache
from pipeline_def.data.dataset import make_dataset
from pipeline_def.data.moments import pixel_moments
from pipeline_def.data.read_plan import TrainingOrder
from pipeline_def.data.shards import Shards
from tests import nodes
from tests.conftest import SIZE

BATCH = 8
CONFIG = TransformConfig(size=SIZE)

READERS = {
    "indexed": InputConfig(cache="none"),
    "streamed": InputConfig(cache="none", reader="streamed"),
    "encoded in memory": InputConfig(cache="encoded"),
    "decoded in memory": InputConfig(cache="decoded"),
    "decoded in memory, streamed": InputConfig(cache="decoded", reader="streamed"),
    "file": InputConfig(cache="file"),
}


@pytest.fixture(autouse=True)
def _cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_def.data.indexed_reader.DEFAULT_FOLDER", str(tmp_path / "cache"))


@pytest.fixture(params=list(READERS.values()), ids=list(READERS))
def options(request: pytest.FixtureRequest) -> InputConfig:
    return request.param  # type: ignore[no-any-return]


def dataset(
    transformed: nodes.Transformed, split: str, config: TransformConfig = CONFIG, **more: Any
) -> tf.data.Dataset:
    return make_dataset(
        Shards.of_pattern(f"{transformed.examples.uri}/Split-{split}/*"),
        config=config,
        feature_spec=tft.TFTransformOutput(transformed.graph.uri).transformed_feature_spec(),
        **{"batch_size": BATCH, **more},
    )


def stored(transformed: nodes.Transformed, split: str) -> list[tuple[bytes, int]]:
    """Return pixels and label of every record, in order."""
    records = [r.features.feature for r in nodes.read_examples(transformed.examples, split)]
    encoded = tf.constant([r[example.ENCODED].bytes_list.value[0] for r in records])
    labels = [r[example.LABEL_ID].int64_list.value[0] for r in records]
    return list(
        zip([image.tobytes() for image in decode(encoded, CONFIG).numpy()], labels, strict=True)
    )


def examples(batches: tf.data.Dataset) -> Iterator[tuple[bytes, int]]:
    for images, labels in batches.as_numpy_iterator():
        for image, label in zip(images, labels, strict=True):
            yield image.tobytes(), int(label)


def test_evaluation_reads_every_example_once_in_order(
    transformed: nodes.Transformed, options: InputConfig
) -> None:
    found = list(examples(dataset(transformed, "eval", options=options)))
    assert found == stored(transformed, "eval")


def test_each_epoch_of_training_reads_every_example_once_in_its_own_order(
    transformed: nodes.Transformed, options: InputConfig
) -> None:
    expected = stored(transformed, "train")
    stream = examples(dataset(transformed, "train", options=options, order=TrainingOrder()))
    epochs = [list(itertools.islice(stream, len(expected))) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(expected)
    assert epochs[0] != epochs[1]
    assert epochs[0] != expected


def test_shapes_are_static_and_pixels_stay_uint8(
    transformed: nodes.Transformed, options: InputConfig
) -> None:
    batches = dataset(transformed, "train", options=options, order=TrainingOrder())
    assert batches.element_spec == (
        tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.uint8),
        tf.TensorSpec([BATCH], tf.int64),
    )


def first_examples(
    transformed: nodes.Transformed,
    options: InputConfig,
    order: TrainingOrder,
    *,
    config: TransformConfig = CONFIG,
    batches: int = 30,
) -> list[tuple[bytes, int]]:
    """Return the examples of so many batches, of two epochs and more."""
    stream = dataset(transformed, "train", config, options=options, order=order)
    return list(examples(stream.take(batches)))


def test_the_order_is_that_of_the_seed_whatever_the_parallelism(
    transformed: nodes.Transformed, options: InputConfig
) -> None:
    first = first_examples(transformed, options, TrainingOrder(seed=3))
    for threads in (1, 5):
        again = InputConfig(**{**vars(options), "threads": threads, "prefetch": threads})
        assert first_examples(transformed, again, TrainingOrder(seed=3)) == first
    assert first_examples(transformed, options, TrainingOrder(seed=4)) != first


def test_a_cache_does_not_change_the_order(transformed: nodes.Transformed) -> None:
    names = ("indexed", "encoded in memory", "decoded in memory", "file")
    first, *others = (first_examples(transformed, READERS[n], TrainingOrder()) for n in names)
    assert all(other == first for other in others)


def test_not_deterministic_still_reads_every_example_once(transformed: nodes.Transformed) -> None:
    readers: list[Literal["indexed", "streamed"]] = ["indexed", "streamed"]
    for reader in readers:
        options = InputConfig(cache="none", reader=reader, deterministic=False)
        expected = stored(transformed, "train")
        # Batches may change places, at an epoch's end too, so that only the first ones count.
        found = first_examples(transformed, options, TrainingOrder(), batches=6)
        assert len(set(found)) == 6 * BATCH
        assert set(found) <= set(expected)


@pytest.mark.parametrize("start", [1, 7, 12, 29])
def test_training_goes_on_with_the_examples_it_would_have_seen_next(
    transformed: nodes.Transformed, options: InputConfig, start: int
) -> None:
    whole = first_examples(transformed, options, TrainingOrder(seed=3))
    rest = first_examples(
        transformed, options, TrainingOrder(seed=3, start=start), batches=30 - start
    )
    assert rest == whole[start * BATCH :]


@pytest.mark.parametrize("reader", ["indexed", "decoded in memory"])
def test_each_step_of_several_workers_has_the_examples_that_one_would_have_had(
    transformed: nodes.Transformed, reader: str
) -> None:
    options = READERS[reader]
    alone = first_examples(transformed, options, TrainingOrder(seed=3))
    workers = [
        first_examples(transformed, options, TrainingOrder(3, 0, 2, i), batches=15)
        for i in range(2)
    ]
    for step in range(15):
        shared = [w for worker in workers for w in worker[step * BATCH : (step + 1) * BATCH]]
        assert shared == alone[2 * step * BATCH : 2 * (step + 1) * BATCH]


def test_streaming_workers_share_the_shards(transformed: nodes.Transformed) -> None:
    expected = sorted(stored(transformed, "train"))
    counts = list(Shards.of_pattern(f"{transformed.examples.uri}/Split-train/*").counts.values())
    found: list[tuple[bytes, int]] = []
    for i in range(2):
        order = TrainingOrder(pipelines=2, pipeline=i)
        stream = examples(dataset(transformed, "train", options=READERS["streamed"], order=order))
        found += itertools.islice(stream, sum(counts[i::2]))
    assert sorted(found) == expected


def test_more_streaming_workers_than_shards_is_an_error(transformed: nodes.Transformed) -> None:
    order = TrainingOrder(pipelines=99, pipeline=98)
    with pytest.raises(UserError, match=r"99 workers cannot share \d+ shards"):
        dataset(transformed, "train", options=READERS["streamed"], order=order)


def test_the_streamed_reader_needs_no_python(transformed: nodes.Transformed) -> None:
    def functions(batches: tf.data.Dataset) -> bytes:
        graph: bytes = batches._as_serialized_graph().numpy()
        return graph

    streamed = dataset(transformed, "train", options=READERS["streamed"], order=TrainingOrder())
    indexed = dataset(transformed, "train", options=READERS["indexed"], order=TrainingOrder())
    assert b"PyFunc" not in functions(streamed)
    assert b"PyFunc" in functions(indexed)


@pytest.mark.parametrize("name", ["indexed", "streamed", "decoded in memory", "file"])
def test_windows_are_random_in_training_and_central_in_evaluation(
    transformed: nodes.Transformed, name: str
) -> None:
    config, options = TransformConfig(size=SIZE - 8, margin=8), READERS[name]
    whole = np.stack([np.frombuffer(x, np.uint8) for x, _ in stored(transformed, "eval")])
    whole = whole.reshape(-1, SIZE, SIZE, 3)
    batches = dataset(transformed, "eval", config, options=options).as_numpy_iterator()
    np.testing.assert_array_equal(
        np.concatenate([images for images, _ in batches]), whole[:, 4:-4, 4:-4]
    )
    originals = {label: [] for _, label in stored(transformed, "train")}  # type: ignore[var-annotated]
    for pixels, label in stored(transformed, "train"):
        originals[label].append(np.frombuffer(pixels, np.uint8).reshape(SIZE, SIZE, 3))
    side, corners = SIZE - 8, set()
    for pixels, label in first_examples(transformed, options, TrainingOrder(), config=config):
        image = np.frombuffer(pixels, np.uint8).reshape(side, side, 3)
        for top, left in itertools.product(range(9), repeat=2):
            window = np.s_[top : top + side, left : left + side]
            if any(np.array_equal(image, x[window]) for x in originals[label]):
                corners.add((top, left))
                break
        else:
            pytest.fail("a training image is no window of a stored one")
    assert {top for top, _ in corners} == {left for _, left in corners} == set(range(9))
    first = first_examples(transformed, options, TrainingOrder(seed=5), config=config)
    again = first_examples(
        transformed, options, TrainingOrder(seed=5, start=3), config=config, batches=27
    )
    assert again == first[3 * BATCH :]


@pytest.mark.parametrize("margin", [0, 8])
def test_about_half_of_the_images_are_mirrored(
    transformed: nodes.Transformed, options: InputConfig, margin: int
) -> None:
    config = TransformConfig(size=SIZE - margin, margin=margin)
    plain, flipped, again = (
        first_examples(
            transformed, options, TrainingOrder(seed=5, flip=flip), config=config, batches=12
        )
        for flip in (False, True, True)
    )
    assert flipped == again
    side = SIZE - margin
    mirrored = 0
    for (pixels, label), (expected, expected_label) in zip(flipped, plain, strict=True):
        assert label == expected_label
        if pixels != expected:
            image = np.frombuffer(expected, np.uint8).reshape(side, side, 3)
            assert pixels == image[:, ::-1].tobytes()
            mirrored += 1
    assert 0.3 < mirrored / len(plain) < 0.7


def test_a_file_cache_is_used_again_while_the_shards_are_the_same(
    transformed: nodes.Transformed, tmp_path: Path
) -> None:
    options = InputConfig(cache="file", cache_folder=str(tmp_path / "pixels"))
    expected = list(examples(dataset(transformed, "eval", options=options)))
    [folder] = (tmp_path / "pixels").iterdir()
    pixels = np.load(folder / "pixels.npy", mmap_mode="r+")
    pixels[0] = 7
    pixels.flush()
    again = list(examples(dataset(transformed, "eval", options=options)))
    assert again[0][0] == bytes([7]) * SIZE * SIZE * 3
    assert again[1:] == expected[1:]
    other = TransformConfig(size=SIZE - 8, margin=8)
    list(examples(dataset(transformed, "eval", other, options=options)))
    assert len(list((tmp_path / "pixels").iterdir())) == 2


@pytest.mark.parametrize("kind", ["decoded", "encoded"])
def test_a_cache_that_does_not_fit_is_refused(
    transformed: nodes.Transformed, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(cache, "available_memory", lambda: 20_000)
    with pytest.raises(UserError, match=rf"input.cache is '{kind}', which takes .* choose "):
        dataset(transformed, "train", options=InputConfig(cache=kind), order=TrainingOrder())


@pytest.mark.parametrize(("available", "expected"), [(10**9, "decoded"), (10**5, "none")])
def test_auto_keeps_pixels_that_take_less_than_half_of_the_memory(
    transformed: nodes.Transformed,
    monkeypatch: pytest.MonkeyPatch,
    available: int,
    expected: str,
) -> None:
    monkeypatch.setattr(cache, "available_memory", lambda: available)
    shards = Shards.of_pattern(f"{transformed.examples.uri}/Split-train/*")
    assert cache.resolve_cache(InputConfig(), [shards], CONFIG).cache == expected


def test_shards_without_an_index_are_streamed(
    transformed: nodes.Transformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.records.record_index.FOLDER", "nowhere")
    found = list(examples(dataset(transformed, "eval", options=InputConfig(cache="none"))))
    assert found == stored(transformed, "eval")
    for options in (InputConfig(cache="none", reader="indexed"), InputConfig(cache="encoded")):
        with pytest.raises(UserError, match="has no index of its images"):
            dataset(transformed, "eval", options=options)


def test_the_indexed_reader_asks_for_local_shards() -> None:
    shards = Shards("gs://bucket/examples", "train", {"data": 10})
    options = InputConfig(cache="none", reader="indexed")
    with pytest.raises(UserError, match="and these are at gs://bucket/examples: choose"):
        make_dataset(shards, config=CONFIG, feature_spec={}, batch_size=2, options=options)


@pytest.mark.parametrize("most", [1024, 20])
def test_moments_are_those_of_the_first_training_images(
    transformed: nodes.Transformed, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("pipeline_def.data.moments._IMAGES", most)
    images = [pixels for pixels, _ in stored(transformed, "train")[:most]]
    pixels = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 3)
    mean, variance = pixel_moments(dataset(transformed, "train"))
    np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(variance, pixels.astype(float).var(axis=0), rtol=1e-9)
