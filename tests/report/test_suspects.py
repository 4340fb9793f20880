"""From the outputs of earlier steps to suspects with their pictures."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components.contract.example import CORRECTIONS_FILE
from components.contract.image_tables import EMBEDDINGS_FILE, IMAGES_FILE, write_image_table
from components.images.pixel_statistics import measure_pixels
from components.report.shown import PredictedImage, SuspectFacts
from components.report.suspects.gathering import find_suspects, show_suspects
from tests.pictures import encode
from tests.report.samples.records import LABELS, SIZE, Record, make_records, write_splits

BLACK = "black/é.png"
MISTAKE = PredictedImage("test/0.jpg", LABELS[0], LABELS[1], 0.9, 0.1, None)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    """Sixty pictures to train, of which the last is black, and three to test."""
    train = make_records(20)
    train[-1] = Record(BLACK, 2, encode(Image.new("RGB", (SIZE, SIZE)), "PNG"))
    test = [record._replace(filename=f"test/{n}.jpg") for n, record in enumerate(make_records(1))]
    splits = {"train": train, "test": test}
    write_splits(tmp_path / "examples", splits)
    write_table(tmp_path / "model_run", splits)
    (tmp_path / "rejects").mkdir()
    return {
        name: SimpleNamespace(uri=str(tmp_path / name))
        for name in ("examples", "model_run", "rejects")
    }


def write_table(folder: Path, splits: Mapping[str, list[Record]]) -> None:
    """Features are the colors of the labels, with a little noise."""
    rows = [(split, record) for split, records in splits.items() for record in records]
    pixels = [np.asarray(Image.open(BytesIO(record.encoded)).convert("RGB")) for _, record in rows]
    ids = np.array([record.label_id for _, record in rows])
    labels = [LABELS[number] for number in ids]
    columns: dict[str, Any] = {
        "path": [record.filename for _, record in rows],
        "sha256": [f"{row:064d}" for row in range(len(rows))],
        "split": [split for split, _ in rows],
        "label": labels,
        **measure_pixels(np.stack(pixels)),
    }
    noise = np.random.default_rng(0).normal(0, 0.01, (len(rows), 8))
    with write_image_table(str(folder), rows=len(rows)) as table:
        table.add(columns, np.eye(3, 8)[ids] + noise)


def show(given: Mapping[str, Any], *, limit: int = 1_000_000) -> SuspectFacts:
    suspects = find_suspects(given, pretrained=False, folds={})
    assert suspects
    return show_suspects(
        suspects, [MISTAKE], examples_uri=given["examples"].uri, root="", limit=limit
    )


def test_a_black_image_is_shown_with_similar_training_images(given: dict[str, Any]) -> None:
    suspects = show(given)
    [black] = suspects.shown
    assert (black.path, black.reason) == (BLACK, "blank")
    assert suspects.rows == (black,)
    assert suspects.counts == {"blank": 1}
    picture = suspects.pictures[BLACK]
    assert picture
    assert np.asarray(Image.open(BytesIO(picture.jpeg))).max() == 0
    similar = suspects.similar[MISTAKE.filename]
    assert {suspects.labels[path] for path in black.neighbors} == {LABELS[2]}
    assert {suspects.labels[path] for path in similar} == {LABELS[0]}
    assert all(suspects.pictures[path] for path in (*black.neighbors, *similar))
    assert not any(path.startswith("test/") for path in (*black.neighbors, *similar))
    assert suspects.image_map
    assert suspects.image_map.suspects == {BLACK}
    assert suspects.image_map.total == len(suspects.image_map.paths) == 63
    again = show(given)
    assert (again.rows, again.shown) == (suspects.rows, suspects.shown)
    assert again.image_map
    assert (again.image_map.places == suspects.image_map.places).all()


def test_pictures_beyond_the_limit_are_left_out_those_of_suspects_last(
    given: dict[str, Any],
) -> None:
    whole = show(given).pictures[BLACK]
    assert whole
    assert show(given, limit=len(whole.jpeg)).pictures == {BLACK: whole}


def test_a_judged_image_is_no_suspect(given: dict[str, Any], tmp_path: Path) -> None:
    row = {"sha256": f"{59:064d}", "result": "kept"}
    (tmp_path / "rejects" / CORRECTIONS_FILE).write_text(json.dumps(row))
    assert show(given).shown == ()


def test_without_embeddings_there_are_neither_neighbors_nor_a_map(
    given: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "model_run" / EMBEDDINGS_FILE).unlink()
    suspects = show(given)
    assert suspects.shown[0].neighbors == ()
    assert suspects.similar == {}
    assert suspects.image_map is None


def test_runs_of_earlier_versions_have_no_table(given: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model_run" / IMAGES_FILE).unlink()
    assert find_suspects(given, pretrained=False, folds={}) is None
