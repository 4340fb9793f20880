import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.contract.errors import StorageError
from components.trainer.input.cache import default_folder, open_pixels

SHAPE = (4, 8, 8, 3)
SIZE = 4 * 8 * 8 * 3
# Room for two sets of pixels with headers of 128 bytes, not three.
TWO = 2 * (SIZE + 128) + SIZE // 2


def fill(pixels: Any, labels: Any) -> None:
    pixels[:], labels[:] = 7, np.arange(len(labels))


def interrupted(pixels: Any, labels: Any) -> None:
    raise KeyboardInterrupt


def never(pixels: Any, labels: Any) -> None:
    raise AssertionError("the pixels are cached")


def cached(folder: Path, name: str, *, limit: int = TWO, fill: Any = fill) -> Any:
    # Entries are ordered by last use, so the clock must advance.
    time.sleep(0.01)
    return open_pixels(folder / name, SHAPE, limit=limit, fill=fill)[0]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def test_pixels_are_written_once_and_then_mapped(tmp_path: Path) -> None:
    open_pixels(tmp_path / "new" / "a", SHAPE, limit=TWO, fill=fill)
    pixels, labels = open_pixels(tmp_path / "new" / "a", SHAPE, limit=TWO, fill=never)
    np.testing.assert_array_equal(pixels, np.full(SHAPE, 7))
    np.testing.assert_array_equal(labels, np.arange(4))


def test_the_least_recently_used_pixels_go_first(tmp_path: Path) -> None:
    for name in ("a", "b", "a", "c"):
        cached(tmp_path, name)
    assert names(tmp_path) == {"a", "c"}


def test_pixels_in_use_stay_readable_when_they_are_removed(tmp_path: Path) -> None:
    used = cached(tmp_path, "a")[1:]
    for name in ("b", "c"):
        cached(tmp_path, name)
    assert names(tmp_path) == {"b", "c"}
    assert (used == 7).all()


def test_two_processes_that_write_the_same_pixels(tmp_path: Path) -> None:
    def slower(pixels: Any, labels: Any) -> None:
        cached(tmp_path, "a")
        fill(pixels, labels)
        pixels[:] = 8

    assert (cached(tmp_path, "a", fill=slower) == 7).all()
    assert names(tmp_path) == {"a"}


def test_pixels_of_a_killed_process_are_never_read_and_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            cached(tmp_path, "a", fill=interrupted)
    [left] = names(tmp_path)
    assert left.endswith(".unfinished")
    assert (cached(tmp_path, "a") == 7).all()
    # It may still be written.
    with pytest.raises(StorageError, match=r"in .* are in use, .* choose another"):
        cached(tmp_path, "b", limit=SIZE + 200)
    assert names(tmp_path) == {left}
    long_ago = time.time() - 7200
    os.utime(tmp_path / left / "pixels.npy", (long_ago, long_ago))
    cached(tmp_path, "b", limit=SIZE + 200)
    assert names(tmp_path) == {"b"}


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path, "a", fill=interrupted)
    assert not names(tmp_path)


def test_a_full_disk_evicts_pixels_and_then_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(tmp_path, "a")
    free = iter([0, SIZE])

    class Usage:
        def __init__(self, _: Path) -> None:
            self.free = next(free, 0)

    monkeypatch.setattr(shutil, "disk_usage", Usage)
    cached(tmp_path, "b")
    assert names(tmp_path) == {"b"}
    with pytest.raises(StorageError, match=r"0\.0 GiB of the disk are free"):
        cached(tmp_path, "c")


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/pixels cannot be used: .* Choose another"):
        cached(tmp_path / "file" / "pixels", "a")


def test_the_default_folder_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    folder = default_folder()
    assert folder.is_relative_to(tmp_path / "caches")
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder().is_relative_to(tmp_path / "home" / ".cache")
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(StorageError, match="belongs to another user"):
        default_folder()
