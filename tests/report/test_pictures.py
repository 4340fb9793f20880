from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from benchmarks.gcs_server import GcsServer
from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID
from components.evaluation.predictions import Evaluated, Predictions
from components.images.thumbnails import Picture, make_thumbnail, picture_of
from components.ingest.config import IngestConfig
from components.ingest.ingest_report import DUPLICATES_FILE, REJECTS_FILE
from components.report import source_pictures
from components.report.class_samples import sample_classes
from components.report.mistakes import show_mistakes
from components.report.source_pictures import show_rejects, show_same_images
from tests import nodes
from tests.pictures import encode, picture

JPEG = encode(picture(1), "JPEG")


def write_lines(folder: Path, name: str, lines: Sequence[dict[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def reject(path: str) -> dict[str, str]:
    return {"path": path, "category": "truncated", "reason": "JPEG: cut off"}


def same(*paths: str, labels: Sequence[str] = ("a",), splits: Sequence[str] = ("train",)) -> Any:
    return {"sha256": "", "paths": paths, "labels": labels, "splits": splits}


def test_rejects_and_copies_of_an_ingest_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(40):
            image = encode(picture(number + 100 * (label == "cat")), "JPEG")
            (folder / label / f"{number}.jpg").write_bytes(image)
    large = encode(picture(1, height=300, width=400), "JPEG")
    (folder / "cat" / "cut.jpg").write_bytes(large[: len(large) * 2 // 3])
    (folder / "cat" / "note.jpg").write_bytes(b"no image")
    (folder / "cat" / "copy.jpg").write_bytes((folder / "dog" / "3.jpg").read_bytes())
    config = IngestConfig(max_reject_fraction=1)
    rejects_uri = nodes.ingest(folder, tmp_path, config=config).rejects.uri

    cut, note = show_rejects(rejects_uri, str(folder), most=40)
    assert (cut.path, cut.category) == ("cat/cut.jpg", "truncated")
    assert cut.picture is not None
    assert cut.picture == make_thumbnail((folder / "cat" / "cut.jpg").read_bytes())
    assert (note.category, note.picture) == ("not an image", None)
    assert "format" in note.reason

    [copies] = show_same_images(rejects_uri, str(folder), most=40)
    assert copies.paths == ("cat/copy.jpg", "dog/3.jpg")
    assert copies.labels == ("cat", "dog")
    assert copies.picture == make_thumbnail((folder / "dog" / "3.jpg").read_bytes())


def test_conflicts_come_first_then_those_in_several_splits(tmp_path: Path) -> None:
    lines = [
        same("1", "2"),
        same("3", "4", splits=["eval", "train"]),
        same("5", "6", labels=["a", "b"]),
        same("7", "8", splits=["eval", "train"], labels=["a", "b"]),
        same("9", "A"),
    ]
    uri = write_lines(tmp_path / "rejects", DUPLICATES_FILE, lines)
    found = show_same_images(uri, str(tmp_path), most=4)
    assert [entry.paths[0] for entry in found] == ["7", "5", "3", "1"]


def test_the_first_rejects_are_shown(tmp_path: Path) -> None:
    lines = [reject(f"{number:03d}.jpg") for number in range(100)]
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, lines)
    found = show_rejects(uri, str(tmp_path), most=3)
    assert [entry.path for entry in found] == ["000.jpg", "001.jpg", "002.jpg"]
    assert show_rejects(uri, str(tmp_path), most=0) == ()


NO_PICTURE = {
    "above the folder": "../outside.jpg",
    "above, on the way": "cat/../../outside.jpg",
    "from the root": "{root}/outside.jpg",
    "gone": "cat/gone.jpg",
    "a folder": "cat",
    "a pipe": "pipe.jpg",
    "too large": "large.jpg",
}


@pytest.mark.parametrize("path", NO_PICTURE.values(), ids=NO_PICTURE.keys())
def test_a_file_that_cannot_be_shown_does_not_stop_the_others(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_pictures, "_MOST_BYTES", 10_000)
    root = tmp_path / "images"
    (root / "cat").mkdir(parents=True)
    for name in ("outside.jpg", "images/good.jpg"):
        (tmp_path / name).write_bytes(JPEG)
    (root / "large.jpg").write_bytes(JPEG + bytes(10_000))
    os.mkfifo(root / "pipe.jpg")
    lines = [reject(path.format(root=tmp_path)), reject("good.jpg")]
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, lines)
    bad, good = show_rejects(uri, str(root), most=9)
    assert bad.picture is None
    assert good.picture == make_thumbnail(JPEG)


@pytest.mark.parametrize("root", ["/nowhere/at/all", "gopher://host/images"])
def test_a_folder_that_is_out_of_reach_leaves_the_texts(root: str, tmp_path: Path) -> None:
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, [reject("1.jpg"), reject("2.jpg")])
    found = show_rejects(uri, root, most=9)
    assert [(entry.path, entry.picture) for entry in found] == [("1.jpg", None), ("2.jpg", None)]


def test_no_more_is_read_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look at the clock takes a second; a batch is read for every look but the first.
    clock = iter(range(100))
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("components.report.source_pictures.time", ticking)
    monkeypatch.setattr(source_pictures, "_TOTAL_SECONDS", 2)
    names = [f"{number}.jpg" for number in range(3 * 8)]
    for name in names:
        (tmp_path / name).write_bytes(JPEG)
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
    found = show_rejects(uri, str(tmp_path), most=99)
    assert [entry.picture is not None for entry in found] == [True] * 16 + [False] * 8


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """A Cloud Storage server that every gs:// of the test goes to."""
    with GcsServer() as server:
        options = {"endpoint_url": server.endpoint, "token": "anon"}
        monkeypatch.setitem(fsspec.config.conf, "gs", options)
        # gcsfs's own first pause is of a second and more.
        monkeypatch.setattr("gcsfs.retry.random", SimpleNamespace(random=lambda: -0.99))
        yield server
        fs = fsspec.filesystem("gs")
        if fs.session:
            fsspec.asyn.sync(fs.loop, fs.session.close)
        type(fs).clear_instance_cache()


def test_files_of_a_bucket_are_shown(server: GcsServer, tmp_path: Path) -> None:
    for name, data in {"a b#1.jpg": JPEG, "empty.jpg": b"", "refused.jpg": JPEG}.items():
        server.put("bucket", f"images/cat/{name}", data)
    server.faults["images/cat/refused.jpg"] = [403]
    names = ["cat/a b#1.jpg", "cat/empty.jpg", "cat/refused.jpg", "cat/gone.jpg"]
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
    found = show_rejects(uri, "gs://bucket/images/", most=9)
    assert [entry.picture for entry in found] == [make_thumbnail(JPEG), None, None, None]


def test_a_store_that_never_answers_is_given_up(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_pictures, "_BATCH_SECONDS", 0.2)
    server.put("bucket", "images/1.jpg", JPEG)
    server.latency_ms = 3_000
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, [reject("1.jpg")])
    [found] = show_rejects(uri, "gs://bucket/images", most=9)
    assert found.picture is None


def raw_records(examples: Any, split: str) -> dict[str, tuple[str, bytes]]:
    """Return the label and the image of each file."""
    features = [record.features.feature for record in nodes.read_examples(examples, split)]
    return {
        of_record[FILENAME].bytes_list.value[0].decode(): (
            of_record[LABEL].bytes_list.value[0].decode(),
            of_record[ENCODED].bytes_list.value[0],
        )
        for of_record in features
    }


LABELS = ("red", "green", "blue")


def evaluate(answers: dict[str, tuple[int, dict[int, float]]]) -> Evaluated:
    """Put together file → label id, and the probabilities of some label ids."""
    names = sorted(answers)
    probabilities = np.zeros((len(names), len(LABELS)), np.float32)
    for row, name in enumerate(names):
        for column, probability in answers[name][1].items():
            probabilities[row, column] = probability
    ids = np.array([answers[name][0] for name in names], np.int64)
    texts = tuple("violet" if number < 0 else LABELS[number] for number in ids)
    return Evaluated(
        tuple(names), {"class": texts}, Predictions(LABELS, ids, probabilities), baseline=None
    )


def test_the_worst_mistakes_are_shown_with_the_images_as_found(ingested: nodes.Ingested) -> None:
    records = raw_records(ingested.examples, "eval")
    first, second, third, unknown, *right = sorted(records)
    answers = {
        first: (0, {1: 0.7, 0: 0.2, 2: 0.1}),
        second: (1, {2: 0.9, 1: 0.1}),
        third: (2, {0: 0.7, 2: 0.3}),
        unknown: (-1, {1: 0.8, 0: 0.2}),
        **dict.fromkeys(right, (0, {0: 1.0})),
    }
    found = show_mistakes(evaluate(answers), ingested.examples.uri, "eval", most=3)
    assert [mistake.filename for mistake in found] == [second, unknown, first]
    assert [(m.label, m.predicted) for m in found] == [
        ("green", "blue"),
        ("violet", "green"),
        ("red", "green"),
    ]
    assert [m.confidence for m in found] == pytest.approx([0.9, 0.8, 0.7])
    assert [m.probability for m in found] == pytest.approx([0.1, 0.0, 0.2])
    assert [m.picture for m in found] == [make_thumbnail(records[m.filename][1]) for m in found]


def test_a_model_without_mistakes_has_none_to_show(ingested: nodes.Ingested) -> None:
    names = raw_records(ingested.examples, "eval")
    answers = evaluate(dict.fromkeys(names, (0, {0: 1.0})))
    assert show_mistakes(answers, ingested.examples.uri, "eval", most=9) == ()


VARIED = {
    "three of a kind leave room for others": (4, ["r0", "r1", "r2", "g0"]),
    "more of a kind where there are no others": (6, ["r0", "r1", "r2", "r3", "r4", "g0"]),
    "all of them": (99, ["r0", "r1", "r2", "r3", "r4", "g0"]),
    "none": (0, []),
}


@pytest.mark.parametrize(("most", "shown"), VARIED.values(), ids=VARIED.keys())
def test_mistakes_of_several_kinds_are_shown(
    most: int, shown: list[str], ingested: nodes.Ingested
) -> None:
    answers = {f"r{number}": (0, {1: 0.9 - number / 100}) for number in range(5)}
    answers["g0"] = (1, {2: 0.5})
    found = show_mistakes(evaluate(answers), ingested.examples.uri, "eval", most=most)
    assert [mistake.filename for mistake in found] == shown
    # Files that the examples do not have.
    assert all(mistake.picture is None for mistake in found)


def decode_all(canonical: Sequence[bytes]) -> Any:
    return np.stack([tf.io.decode_jpeg(file, channels=3).numpy() for file in canonical])


def invert(canonical: Sequence[bytes]) -> tuple[Any, Any]:
    seen = decode_all(canonical)
    return seen, 255 - seen


def test_samples_are_the_first_images_of_the_classes_asked_for(
    transformed: nodes.Transformed,
) -> None:
    features = [r.features.feature for r in nodes.read_examples(transformed.examples, "train")]
    expected: dict[int, list[Picture]] = {0: [], 1: [], 2: []}
    for record in features:
        [image] = decode_all(record[ENCODED].bytes_list.value)
        expected[record[LABEL_ID].int64_list.value[0]].append(picture_of(image))
    vocabulary = ["zero", "one", "two"]
    found = sample_classes(
        transformed.examples.uri,
        vocabulary,
        shown=["two", "zero", "unheard of"],
        each=3,
        preview_images=invert,
    )
    assert [sample.label for sample in found] == ["two", "zero"]
    for sample in found:
        assert list(sample.seen) == expected[vocabulary.index(sample.label)][:3]
        for seen, augmented in zip(sample.seen, sample.augmented, strict=True):
            pixels = [np.asarray(Image.open(io.BytesIO(shown.jpeg))) for shown in (seen, augmented)]
            np.testing.assert_allclose(255 - pixels[1].astype(int), pixels[0], atol=25)


def test_a_class_shows_as_many_as_there_are(transformed: nodes.Transformed) -> None:
    def keep(canonical: Sequence[bytes]) -> tuple[Any, Any]:
        seen = decode_all(canonical)
        return seen, seen

    [sample] = sample_classes(
        transformed.examples.uri, ["a", "b", "c"], shown=["b"], each=999, preview_images=keep
    )
    count = sum(
        record.features.feature[LABEL_ID].int64_list.value[0] == 1
        for record in nodes.read_examples(transformed.examples, "train")
    )
    assert len(sample.seen) == count > 0
    # Nothing is changed in training.
    assert sample.augmented == sample.seen


def test_examples_without_an_index_of_images_have_no_samples(ingested: nodes.Ingested) -> None:
    uri = ingested.examples.uri
    assert sample_classes(uri, ["a"], shown=["a"], each=1, preview_images=invert) == ()
