"""Files that one stage writes and others read."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from components.contract import image_tables
from components.contract.artifact_files import read_part, write_parts
from components.contract.errors import StorageError
from components.contract.image_tables import (
    EMBEDDINGS_FILE,
    IMAGES_FILE,
    Suspect,
    Texts,
    open_images,
    read_embeddings,
    read_suspects,
    write_image_table,
    write_suspects,
)
from components.report.suspects import similar


def columns(first: int, count: int) -> dict[str, Any]:
    numbers = range(first, first + count)
    texts = ("path", "sha256", "split", "label")
    return {
        **{name: [f"{name} {number}" for number in numbers] for name in texts},
        "brightness": np.arange(first, first + count, dtype=np.float32),
    }


def test_batches_are_read_as_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_tables, "_ROW_GROUP", 4)
    monkeypatch.chdir(tmp_path)
    features = np.arange(14, dtype=np.float32).reshape(7, 2)
    features[3, 1], features[4, 0] = 1e9, -1e9
    with write_image_table("my [folder]", rows=7) as table:
        for first, count in ((0, 3), (3, 3), (6, 1)):
            table.add(columns(first, count), features[first : first + count])
    assert sorted(os.listdir("my [folder]")) == [EMBEDDINGS_FILE, IMAGES_FILE]
    images, rows = open_images("my [folder]").read(), read_embeddings("my [folder]")
    expected = {name: list(values) for name, values in columns(0, 7).items()}
    assert images.to_pydict() == expected
    paths = Texts(open_images("my [folder]"), "path")
    assert (len(paths), list(paths)) == (7, expected["path"])
    assert paths[np.array([6, 0, 5])].tolist() == [f"path {row}" for row in (6, 0, 5)]
    assert rows is not None
    assert rows.dtype == np.float16
    np.testing.assert_array_equal(rows, np.clip(features, -65504, 65504))


def test_searched_features_of_a_file_need_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similar, "_BLOCK", 512)
    with write_image_table(str(tmp_path), rows=2_000) as table:
        features = np.random.default_rng(0).random((2_000, 512), np.float32)
        table.add(columns(0, 2_000), features)
    mapped = read_embeddings(str(tmp_path))
    assert mapped is not None
    similar.find_neighbors(mapped, np.arange(3), among=np.arange(2_000), most=1)
    rows = np.arange(0, 2_000, 20)
    read_rows = similar.read_rows(mapped, rows)
    maps = psutil.Process().memory_maps(grouped=True)
    [read] = [file.rss for file in maps if file.path == str(tmp_path / EMBEDDINGS_FILE)]
    assert read < mapped.nbytes / 10
    np.testing.assert_array_equal(read_rows, mapped[rows])


def test_an_interrupted_pass_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), write_image_table(str(tmp_path), rows=2) as table:
        table.add({"path": columns(0, 1)["no such column"]}, np.zeros((1, 2)))
    assert not list(tmp_path.iterdir())


def test_other_trainers_write_no_table(tmp_path: Path) -> None:
    assert open_images(str(tmp_path)) is None
    assert read_embeddings(str(tmp_path)) is None
    with write_image_table(str(tmp_path), rows=1) as table:
        table.add(columns(0, 1))
    assert open_images(str(tmp_path)).read().num_rows == 1
    assert read_embeddings(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("name", "read"), [(IMAGES_FILE, open_images), (EMBEDDINGS_FILE, read_embeddings)]
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str, read: Any) -> None:
    (tmp_path / name).write_bytes(b"\x93NUMPY cut off")
    with pytest.raises(StorageError, match="is damaged"):
        read(str(tmp_path))


@pytest.mark.parametrize("parts", [[b"only"], [b"one", b"", b"three" * 1000]])
def test_each_part_is_read_by_its_number(parts: list[bytes], tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    write_parts(path, iter(parts))
    assert [read_part(path, number) for number in range(len(parts))] == parts


def test_suspects_keep_every_field_and_the_highest_scores_are_first(tmp_path: Path) -> None:
    low = Suspect("a" * 64, "cat/é.jpg", "train", "cat", "dark", 0.25)
    high = Suspect("b" * 64, "dog/2.jpg", "test", "dog", "label", 0.75, "cat", ("cat/1.jpg",))
    path = str(tmp_path / "suspects.parquet")
    write_suspects(path, [low, high])
    assert read_suspects(path) == [high, low]
    write_suspects(path, [])
    assert read_suspects(path) == []
