from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.contract.errors import StorageError
from components.images.options import TransformConfig
from components.trainer.config.input import InputConfig
from components.trainer.input.cache import cache_pixels
from components.trainer.input.shards import Shards

SHAPE = (4, 8, 8, 3)


def cache(folder: Path, batches: Any) -> tuple[Any, Any]:
    """Return pixels and label ids in a file below `folder`, decoded by `batches` if necessary."""
    dataset: Any = SimpleNamespace(as_numpy_iterator=batches)
    dataset.prefetch = dataset.with_options = lambda _: dataset
    shards = Shards("", "train", {"": 4})
    options = InputConfig(cache="file", cache_folder=str(folder))
    return cache_pixels(dataset, shards, TransformConfig(size=8), options)


def sevens() -> Iterator[Any]:
    yield np.full(SHAPE, 7), np.arange(4)


def interrupted() -> Iterator[Any]:
    raise KeyboardInterrupt


def never() -> Iterator[Any]:
    raise AssertionError("the pixels are cached")


@pytest.fixture(autouse=True)
def _shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.trainer.input.cache._fingerprint", lambda *_: "f")


def test_pixels_are_written_whole_once_and_then_mapped(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(KeyboardInterrupt):
        cache(folder, interrupted)
    assert not list(folder.iterdir())
    cache(folder, sevens)
    pixels, labels = cache(folder, never)
    np.testing.assert_array_equal(pixels, np.full(SHAPE, 7))
    np.testing.assert_array_equal(labels, np.arange(4))


def test_two_processes_that_write_the_same_pixels(tmp_path: Path) -> None:
    def slower() -> Iterator[Any]:
        cache(tmp_path, sevens)
        yield np.full(SHAPE, 8), np.arange(4)

    assert (cache(tmp_path, slower)[0] == 7).all()
    assert [path.name for path in tmp_path.iterdir()] == ["train-f"]


def test_a_full_disk_and_a_folder_that_cannot_be_created_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/pixels cannot be used: .* Choose another"):
        cache(tmp_path / "file" / "pixels", sevens)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(StorageError, match="No space left on device"):
        cache(tmp_path, never)
