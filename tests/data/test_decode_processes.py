import functools
import gc
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.images.tensorflow_decoder import UndecodableError
from components.transform.config import TransformConfig
from pipeline_def.config.input import InputConfig
from pipeline_def.data import dataset, decode_processes
from pipeline_def.data.decode_processes import ProcessDecoder, are_worth_it
from pipeline_def.data.host_decode import HostDecoder
from pipeline_def.data.sampler import TrainingOrder
from pipeline_def.data.shards import RecordTable, map_shards
from tests.data.shard_folder import ShardFolder, examples
from tests.pictures import encode, picture

CONFIG = TransformConfig(size=24, margin=8)
SIDE = CONFIG.stored_size
FILES = [*(encode(picture(n, height=SIDE, width=SIDE), "JPEG") for n in range(3)), b"no image"]
BROKEN = 3
RECORDS = np.array([2, 0, 1, 1])
WINDOWS = np.array([[0, 8, 0], [3, 4, 1], [8, 1, 0], [5, 5, 1]], np.int32)


def started(*arguments: Any) -> ProcessDecoder:
    """Return a decoder whose two processes wait for batches."""
    decoder = ProcessDecoder(*arguments)
    end = time.monotonic() + 60
    while decoder._idle.qsize() < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert decoder._idle.qsize() == 2
    return decoder


def decoders(folder: Path) -> tuple[ProcessDecoder, HostDecoder]:
    """Return a decoder of `FILES` with processes, and one without."""
    shard = folder / "shard"
    shard.write_bytes(b"".join(FILES))
    lengths = np.array([len(file) for file in FILES])
    numbers = np.zeros(len(FILES), np.int32)
    table = RecordTable(numbers, np.cumsum(lengths) - lengths, lengths, numbers.astype(np.int64))
    mapped = functools.partial(map_shards, [str(shard)])
    return started(table, mapped, CONFIG, 2), HostDecoder(table, mapped(), CONFIG)


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ProcessDecoder, HostDecoder]]:
    processes, here = decoders(tmp_path_factory.mktemp("shards"))
    yield processes, here
    processes.close()


def test_processes_decode_the_same_pixels_into_unused_memory(
    both: tuple[ProcessDecoder, HostDecoder],
) -> None:
    processes, here = both
    orders = [np.array(order) for order in itertools.product(range(3), repeat=4)][:12]
    # Some batches are still in use while others are decoded.
    kept = [processes.decode(order, WINDOWS) for order in orders[:4]]
    for order in orders[4:]:
        expected = here.decode(order, WINDOWS)
        np.testing.assert_array_equal(processes.decode(order, WINDOWS), expected)
    for order, batch in zip(orders[:4], kept, strict=True):
        np.testing.assert_array_equal(batch, here.decode(order, WINDOWS))
    assert kept[0].ctypes.data % 64 == 0
    assert len(processes._memory._memory) == 5


def test_what_a_process_cannot_decode_is_decoded_or_explained_here(
    both: tuple[ProcessDecoder, HostDecoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, here = both
    records = np.array([0, BROKEN, 1, 0])
    with pytest.raises(UndecodableError):
        processes.decode(records, WINDOWS)
    black = np.zeros((SIDE, SIDE, 3), np.uint8)
    monkeypatch.setattr("components.images.tensorflow_decoder.decode", lambda file: black)
    batch = processes.decode(records, WINDOWS)
    assert not batch[1].any()
    np.testing.assert_array_equal(batch[2], here.decode(np.array([1]), WINDOWS[2:3])[0])


def test_threads_take_the_place_of_killed_processes_and_none_outlives_its_decoder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes, here = decoders(tmp_path)
    killed, other = (processes._idle.get() for _ in range(2))
    killed.popen.kill()
    processes._idle.put(killed)
    expected = here.decode(RECORDS, WINDOWS)
    for _ in range(2):
        np.testing.assert_array_equal(processes.decode(RECORDS, WINDOWS), expected)
    (warning,) = caplog.records
    assert "has ended, perhaps for lack of memory; a thread takes its place" in warning.message
    del processes
    gc.collect()
    assert other.popen.poll() is not None


def test_training_reads_the_same_batches_with_processes(
    shard_folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_processes, "_FEWEST", 1)
    made: list[ProcessDecoder] = []

    def make(*arguments: Any) -> ProcessDecoder:
        made.append(started(*arguments))
        return made[-1]

    monkeypatch.setattr(dataset, "ProcessDecoder", make)

    def read(threads: int) -> list[tuple[bytes, int]]:
        options = InputConfig(cache="none", threads=threads)
        order = TrainingOrder(seed=4, flip=True)
        return list(examples(shard_folder.dataset("train", options=options, order=order).take(20)))

    assert read(threads=2) == read(threads=1)
    (decoder,) = made
    decoder.close()


def test_processes_are_worth_it_for_many_small_images_and_several_threads() -> None:
    many = decode_processes._FEWEST
    assert are_worth_it(many, CONFIG, workers=2)
    assert not are_worth_it(many - 1, CONFIG, workers=2)
    assert not are_worth_it(many, CONFIG, workers=1)
    assert not are_worth_it(many, TransformConfig(size=224), workers=2)
    assert not are_worth_it(many, TransformConfig(size=24, storage="raw"), workers=2)
