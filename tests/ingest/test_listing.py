from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.contract.errors import UserError
from components.ingest.listing import check_labels, list_images


def touch(folder: Path, *paths: str) -> Path:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.fsencode(path))
    return folder


LAYOUTS = {
    "labels": (["cat/1.jpg", "dog/1.jpg"], {(None, "cat"), (None, "dog")}),
    "nested below the label": (["cat/2019/may/1.jpg", "dog/1.jpg"], {(None, "cat"), (None, "dog")}),
    "train and eval": (["train/cat/1", "eval/cat/1"], {("train", "cat"), ("eval", "cat")}),
    "val means eval": (["train/cat/1", "val/cat/1"], {("train", "cat"), ("eval", "cat")}),
    "upper case": (["Train/cat/1", "Validation/cat/1"], {("train", "cat"), ("eval", "cat")}),
    "test stands in for eval": (["train/cat/1", "test/cat/1"], {("train", "cat"), ("eval", "cat")}),
    "test beside eval": (
        ["train/cat/1", "val/cat/1", "test/cat/1"],
        {("train", "cat"), ("eval", "cat"), ("test", "cat")},
    ),
    "a class may be called train": (["train/1.jpg", "bus/1.jpg"], {(None, "train"), (None, "bus")}),
}


@pytest.mark.parametrize(("paths", "expected"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layout(tmp_path: Path, paths: list[str], expected: set[tuple[str | None, str]]) -> None:
    listing = list_images(str(touch(tmp_path, *paths)))
    assert {(file.split, file.label) for file in listing.files} == expected
    assert sorted(file.path for file in listing.files) == sorted(paths)


def test_ignored_and_loose_files_are_listed_as_skipped(tmp_path: Path) -> None:
    skipped = [".DS_Store", "cat/.hidden.jpg", "cat/Thumbs.db", "readme.txt", ".git/config"]
    listing = list_images(str(touch(tmp_path, "cat/1.jpg", "dog/1.jpg", *skipped)))
    assert [file.path for file in listing.files] == ["cat/1.jpg", "dog/1.jpg"]
    assert [entry.path for entry in listing.skipped] == sorted(skipped)
    assert {entry.path: entry.reason for entry in listing.skipped} == {
        ".DS_Store": "hidden",
        ".git/config": "hidden",
        "cat/.hidden.jpg": "hidden",
        "cat/Thumbs.db": "left by the system",
        "readme.txt": "in no label folder",
    }


@pytest.mark.parametrize(
    "name", ["a b.jpg", "новый.jpg", "100%2e.jpg", "line\nbreak", "-rf", "#1?"]
)
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    listing = list_images(str(touch(tmp_path, f"cat/{name}", "dog/1.jpg")))
    assert listing.files[0].path == f"cat/{name}"


def test_links_are_followed_but_not_in_cycles(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/1.jpg", "elsewhere/2.jpg")
    (tmp_path / "cat/up").symlink_to(tmp_path)
    (tmp_path / "cat/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cat/gone.jpg").symlink_to(tmp_path / "nothing")
    listing = list_images(str(tmp_path))
    paths = [file.path for file in listing.files]
    assert paths == ["cat/1.jpg", "cat/gone.jpg", "cat/more/2.jpg", "dog/1.jpg", "elsewhere/2.jpg"]
    assert listing.skipped == (("cat/up", "not a regular file"),)


def test_folders_may_be_nested_more_deeply_than_functions(tmp_path: Path) -> None:
    touch(tmp_path, f"a/{'b/' * 120}1.png")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        [file] = list_images(str(tmp_path)).files
    finally:
        sys.setrecursionlimit(before)
    assert (file.label, file.path.count("/")) == ("a", 121)


def test_pipes_are_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg")
    os.mkfifo(tmp_path / "cat/pipe.jpg")
    assert list_images(str(tmp_path)).skipped == (("cat/pipe.jpg", "not a regular file"),)


CHANGES: dict[str, Callable[[Path], object]] = {
    # TFX's own fingerprint does not see these two.
    "move to another label": lambda d: (d / "cat/1.jpg").rename(d / "dog/2.jpg"),
    "rename": lambda d: (d / "cat/1.jpg").rename(d / "cat/2.jpg"),
    "touch": lambda d: os.utime(d / "cat/1.jpg", (1, 1)),
    "add": lambda d: touch(d, "cat/2.jpg"),
    "delete": lambda d: (d / "cat/3.jpg").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_fingerprint_changes_with_the_folder(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    touch(tmp_path, "cat/1.jpg", "cat/3.jpg", "dog/1.jpg")
    before = list_images(str(tmp_path)).fingerprint()
    assert list_images(str(tmp_path)).fingerprint() == before
    change(tmp_path)
    assert list_images(str(tmp_path)).fingerprint() != before


MISTAKES = {
    "split without a class": (["train/cat/1", "train/dog/1", "val/cat/1"], "'eval'.*'dog'"),
    "line break in a label": (["c\nat/1.jpg", "dog/1.jpg"], "not one line of UTF-8"),
    "bytes that are no text": (["c\udcffat/1.jpg", "dog/1.jpg"], "not one line of UTF-8"),
    "nothing": ([], "no images in label folders"),
}


@pytest.mark.parametrize(("paths", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_named(tmp_path: Path, paths: list[str], message: str) -> None:
    touch(tmp_path, *paths)
    with pytest.raises(UserError, match=message):
        check_labels(list_images(str(tmp_path)))


def test_an_unknown_file_system_is_a_user_error() -> None:
    with pytest.raises(UserError, match="Cannot open nosuch://bucket"):
        list_images("nosuch://bucket/images")
