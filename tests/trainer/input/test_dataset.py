import doctest
import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism, is_op_determinism_enabled

from components.contract.errors import ConfigurationError, DataError, StorageError
from components.images.options import TransformConfig
from components.trainer.config.input import InputConfig
from components.trainer.input import cache, dataset, sampler
from components.trainer.input.dataset import make_dataset
from components.trainer.input.host_calls import empty_aligned, sharing_captured
from components.trainer.input.sampler import ShuffledSampler, TrainingOrder
from components.trainer.input.shards import Shards, map_shards
from tests.trainer.input.shard_folder import (
    BATCH,
    CONFIG,
    SIZE,
    ShardFolder,
    examples,
    write_shards,
)

READERS = {
    "indexed": InputConfig(cache="none"),
    "streamed": InputConfig(cache="none", reader="streamed"),
    "decoded in memory": InputConfig(cache="decoded"),
}

# Training images of each shard.
COUNTS = [23, 17, 20, 31, 9]
# Two epochs of 100 images and more.
BATCHES = 30

Stream = list[tuple[bytes, int]]
First = Callable[[InputConfig, TrainingOrder], Stream]


@pytest.fixture(params=[*READERS.values()], ids=[*READERS])
def options(request: pytest.FixtureRequest) -> InputConfig:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def shard_folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    """100 training images in five shards of different sizes, 20 of evaluation in two."""
    return write_shards(tmp_path_factory.mktemp("shards"), train=COUNTS, evaluation=[13, 7])


@pytest.fixture(scope="module")
def first_examples(shard_folder: ShardFolder) -> First:
    """Read the examples of the first 30 batches of training."""

    @functools.cache
    def first(options: InputConfig, order: TrainingOrder) -> Stream:
        batches = shard_folder.dataset("train", options=options, order=order)
        return list(examples(batches.take(BATCHES)))

    return first


def test_evaluation_reads_every_example_once_in_order(
    shard_folder: ShardFolder, options: InputConfig
) -> None:
    read = list(examples(shard_folder.dataset("eval", options=options)))
    assert read == shard_folder.stored("eval")


def test_each_epoch_reads_every_example_once_in_a_new_order(
    shard_folder: ShardFolder, first_examples: First, options: InputConfig
) -> None:
    stream, expected = first_examples(options, TrainingOrder(seed=3)), shard_folder.stored("train")
    first, second = stream[: len(expected)], stream[len(expected) : 2 * len(expected)]
    assert sorted(first) == sorted(second) == sorted(expected)
    assert first != second
    assert first != expected


def test_resumed_training_reads_the_same_examples_with_any_parallelism(
    shard_folder: ShardFolder,
    first_examples: First,
    options: InputConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = 17  # in the second epoch
    whole = first_examples(options, TrainingOrder(seed=3))
    monkeypatch.setattr(dataset, "available_cpus", lambda: 5)
    order = TrainingOrder(seed=3, start=start)
    batches = shard_folder.dataset("train", options=options, order=order)
    assert batches.options().autotune.enabled is False, "findings/iterator_end.sh"
    # Shapes are static, and pixels stay uint8.
    assert batches.element_spec == (
        tf.TensorSpec([BATCH, SIZE, SIZE, 3], tf.uint8),
        tf.TensorSpec([BATCH], tf.int64),
    )
    assert list(examples(batches.take(BATCHES - start))) == whole[start * BATCH :]


@pytest.mark.slow
def test_a_cache_does_not_change_the_order(first_examples: First, tmp_path: Path) -> None:
    names = ("indexed", "decoded in memory")
    every = [*(READERS[n] for n in names), InputConfig(cache="file", cache_folder=str(tmp_path))]
    first, *others = (first_examples(options, TrainingOrder(seed=3)) for options in every)
    assert all(other == first for other in others)


def test_several_workers_read_the_examples_of_one_worker_in_each_step(
    first_examples: First,
) -> None:
    options = READERS["indexed"]
    alone = first_examples(options, TrainingOrder(seed=3))
    workers = [first_examples(options, TrainingOrder(3, 0, 2, i)) for i in range(2)]
    for step in range(15):
        shared = [w for worker in workers for w in worker[step * BATCH : (step + 1) * BATCH]]
        assert shared == alone[2 * step * BATCH : 2 * (step + 1) * BATCH]


@pytest.mark.slow
def test_streaming_workers_share_the_shards(shard_folder: ShardFolder) -> None:
    counts = list(shard_folder.shards("train").counts.values())
    read: Stream = []
    for i in range(2):
        order = TrainingOrder(pipelines=2, pipeline=i)
        stream = examples(shard_folder.dataset("train", options=READERS["streamed"], order=order))
        read += itertools.islice(stream, sum(counts[i::2]))
    assert sorted(read) == sorted(shard_folder.stored("train"))


def test_more_streaming_workers_than_shards_is_an_error(shard_folder: ShardFolder) -> None:
    order = TrainingOrder(pipelines=99, pipeline=98)
    with pytest.raises(ConfigurationError, match="99 workers cannot share 5 shards"):
        shard_folder.dataset("train", options=READERS["streamed"], order=order)


@pytest.mark.slow
def test_the_streamed_reader_shuffles_with_a_global_seed_of_0(shard_folder: ShardFolder) -> None:
    options, order = READERS["streamed"], TrainingOrder(seed=0)
    tf.random.set_seed(0)
    try:
        batches = shard_folder.dataset("train", options=options, order=order)
        epoch = list(examples(batches.take(len(shard_folder.stored("train")) // BATCH)))
    finally:
        tf.random.set_seed(None)
    assert len(set(epoch)) == len(epoch)
    assert epoch != shard_folder.stored("train")[: len(epoch)]


def test_a_file_cache_is_reused_for_the_same_shards(
    shard_folder: ShardFolder, tmp_path: Path
) -> None:
    options = InputConfig(cache="file", cache_folder=str(tmp_path / "pixels"))

    def cached() -> set[Path]:
        return set((tmp_path / "pixels").glob("*/pixels.npy"))

    expected = list(examples(shard_folder.dataset("eval", options=options)))
    [file] = cached()
    pixels = np.load(file, mmap_mode="r+")
    pixels[0] = 7
    pixels.flush()
    again = list(examples(shard_folder.dataset("eval", options=options)))
    assert again[0][0] == bytes([7]) * SIZE * SIZE * 3
    assert again[1:] == expected[1:]
    other = TransformConfig(size=SIZE, quality=90)
    list(examples(shard_folder.dataset("eval", other, options=options)))
    assert len(cached()) == 2


def test_a_cache_that_does_not_fit_is_an_error(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "available_memory", lambda: 20_000)
    options, shards = InputConfig(cache="decoded"), shard_folder.shards("train")
    with pytest.raises(ConfigurationError, match=r"cache is .decoded., which takes .* choose"):
        cache.resolve_cache(options, [shards], CONFIG)


@pytest.mark.parametrize(("available", "expected"), [(10**9, "decoded"), (10**5, "none")])
def test_auto_caches_pixels_that_take_less_than_half_of_the_memory(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch, available: int, expected: str
) -> None:
    monkeypatch.setattr(cache, "available_memory", lambda: available)
    shards = shard_folder.shards("train")
    assert cache.resolve_cache(InputConfig(), [shards], CONFIG).cache == expected


@pytest.mark.parametrize("deterministic", [False, True])
def test_pixels_are_in_memory_once(deterministic: bool) -> None:
    shards, order = Shards("examples", "train", {"data": 20_000}), TrainingOrder()
    pixels = empty_aligned((shards.total, SIZE, SIZE, 3))
    pixels[:] = 7
    kept = {"decoded examples train": (pixels, np.zeros(shards.total, np.int64))}
    options, before = READERS["decoded in memory"], psutil.Process().memory_info().rss
    read = functools.partial(make_dataset, config=CONFIG, feature_spec={}, batch_size=2)
    batches = read(shards, options=options, order=order, kept=kept)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    try:
        with sharing_captured():
            started = iter(batches)
        assert is_op_determinism_enabled() == deterministic
    finally:
        disable_op_determinism()
    assert (next(started)[0].numpy() == 7).all()
    assert psutil.Process().memory_info().rss - before < pixels.nbytes / 2


def test_missing_record_indexes_are_an_error(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.records.record_index.FOLDER", "nowhere")
    with pytest.raises(StorageError, match=r"record indexes of .* are missing"):
        shard_folder.dataset("eval", options=InputConfig(cache="none"))


@pytest.mark.parametrize(("shuffled", "most"), [(False, 4), (True, 64)])
def test_few_shards_stay_mapped(tmp_path: Path, shuffled: bool, most: int) -> None:
    paths = []
    for number in range(200):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes([number]) * 10)
        paths.append(str(path))
    opened = map_shards(paths, shuffled=shuffled)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert [opened(number)[3] for number in range(200)] == list(range(200))
    kept = len(list(Path("/proc/self/fd").iterdir())) - before
    assert most // 2 < kept <= most


def test_examples_of_tfx_transform_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "Split-train").mkdir()
    with pytest.raises(DataError, match="ImageTransform has not written these examples"):
        Shards.of_pattern(f"{tmp_path}/Split-train/*")


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(sampler)
    assert (failed, tried) == (0, 4)


def test_shards_are_mixed_two_at_a_time() -> None:
    for epoch in ShuffledSampler(COUNTS, mixed=2, seed=3).at(np.arange(300)).reshape(3, 100):
        shards = np.searchsorted(np.cumsum([0, *COUNTS]), epoch, side="right") - 1
        open_shards: set[int] = set()
        changes = 0
        for shard in shards.tolist():
            if shard not in open_shards:
                changes += 1
                if len(open_shards) == 2:
                    open_shards.clear()
                open_shards.add(shard)
        assert changes == len(COUNTS)


def test_records_are_found_in_any_order() -> None:
    order = ShuffledSampler([9, 6], mixed=1, seed=1)
    whole = order.at(np.arange(5000))
    asked = np.random.default_rng(0).integers(0, 5000, (7, 40))
    assert order.at(asked).tolist() == whole[asked].tolist()
