from __future__ import annotations

from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.listing import list_images
from components.ingest.stratification import check_splits, require_splits


def write(folder: Path, label: str, *, images: int, content: str = "") -> None:
    (folder / label).mkdir(exist_ok=True)
    for number in range(images):
        (folder / label / f"{number}.jpg").write_text(content or f"{label} {number}")


def check(folder: Path) -> None:
    config = IngestConfig()
    check_splits(list_images(str(folder), None, config.splits), config)


def test_no_image_for_a_split(tmp_path: Path) -> None:
    write(tmp_path, "cat", images=1)
    write(tmp_path, "dog", images=1)
    with pytest.raises(DataError, match="falls into the eval split, because there are only 2"):
        check(tmp_path)
    write(tmp_path, "cat", images=2)
    check(tmp_path)


def test_images_that_are_all_alike(tmp_path: Path) -> None:
    """One content has one split."""
    write(tmp_path, "cat", images=50, content="c")
    write(tmp_path, "dog", images=50, content="d")
    with pytest.raises(DataError, match=r"No image of .* falls into the eval split"):
        check(tmp_path)


def test_an_image_with_two_labels_cannot_train_both(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Class 'dog' .* has no usable image to train on"):
        require_splits({"train": {"cat": 1}, "eval": {"dog": 1}}, str(tmp_path))


def test_many_images_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.ingest.stratification._FEW", 1)
    write(tmp_path, "cat", images=1)
    write(tmp_path, "dog", images=1)
    check(tmp_path)
