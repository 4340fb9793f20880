from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.errors import StorageError
from components.trainer.input.cache import open_pixels

SHAPE = (4, 8, 8, 3)


def fill(pixels: Any, labels: Any) -> None:
    pixels[:], labels[:] = 7, np.arange(len(labels))


def interrupted(pixels: Any, labels: Any) -> None:
    raise KeyboardInterrupt


def never(pixels: Any, labels: Any) -> None:
    raise AssertionError("the pixels are cached")


def test_pixels_are_written_whole_once_and_then_mapped(tmp_path: Path) -> None:
    entry = tmp_path / "new" / "a"
    with pytest.raises(KeyboardInterrupt):
        open_pixels(entry, SHAPE, interrupted)
    assert not list(entry.parent.iterdir())
    open_pixels(entry, SHAPE, fill)
    pixels, labels = open_pixels(entry, SHAPE, never)
    np.testing.assert_array_equal(pixels, np.full(SHAPE, 7))
    np.testing.assert_array_equal(labels, np.arange(4))


def test_two_processes_that_write_the_same_pixels(tmp_path: Path) -> None:
    def slower(pixels: Any, labels: Any) -> None:
        open_pixels(tmp_path / "a", SHAPE, fill)
        fill(pixels, labels)
        pixels[:] = 8

    assert (open_pixels(tmp_path / "a", SHAPE, slower)[0] == 7).all()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_and_a_folder_that_cannot_be_created_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/pixels cannot be used: .* Choose another"):
        open_pixels(tmp_path / "file" / "pixels" / "a", SHAPE, fill)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(StorageError, match="No space left on device"):
        open_pixels(tmp_path / "a", SHAPE, never)
