from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, list_images
from components.ingest.shard_plan import split_of
from components.ingest.split_check import check_splits

FRACTIONS = {"eval": 0.2, "train": 0.8}


def write(folder: Path, label: str, split: str, *, images: int) -> None:
    """Write files whose contents fall into `split`."""
    (folder / label).mkdir(exist_ok=True)
    written = number = 0
    while written < images:
        number += 1
        content = f"{label} {number}".encode()
        file = ImageFile(f"{label}/{number}.jpg", label, None, len(content), "")
        if split_of(file, hashlib.sha256(content).hexdigest(), FRACTIONS) == split:
            (folder / file.path).write_bytes(content)
            written += 1


def check(folder: Path) -> None:
    config = IngestConfig()
    check_splits(list_images(str(folder), None, config.splits), config)


def test_no_image_for_a_split(tmp_path: Path) -> None:
    write(tmp_path, "cat", "train", images=2)
    write(tmp_path, "dog", "train", images=1)
    with pytest.raises(DataError, match="falls into the eval split, as there are only 3"):
        check(tmp_path)
    write(tmp_path, "cat", "eval", images=1)
    check(tmp_path)


def test_a_class_without_an_image_to_train_on(tmp_path: Path) -> None:
    write(tmp_path, "cat", "train", images=2)
    write(tmp_path, "dog", "eval", images=2)
    with pytest.raises(DataError, match="has no usable image to train on"):
        check(tmp_path)


def test_rare_classes_among_many_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is rare is read; of the others some fall into each split."""
    monkeypatch.setattr("components.ingest.split_check._FEW", 0)
    write(tmp_path, "cat", "train", images=9)
    write(tmp_path, "dog", "eval", images=3)
    with pytest.raises(DataError, match="Class 'dog'"):
        check(tmp_path)
    write(tmp_path, "dog", "train", images=1)
    check(tmp_path)
