"""Pictures of mistakes and training images from records, of rejects from a folder or bucket."""

import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from benchmarks.gcs_server import GcsServer
from components.contract.example import REJECTS_FILE
from components.images.thumbnails import Thumbnail, make_thumbnail, picture_of
from components.metrics.predictions import Evaluated, Predictions
from components.report import pictures, source_pictures
from components.report.pictures import keep_within, sample_classes
from components.report.predicted_images import choose_images, show_images
from components.report.shown import PredictedImage
from components.report.source_pictures import show_rejects
from tests.pictures import encode, picture
from tests.report.samples.records import LABELS, make_records, write_splits
from tests.report.samples.report_sample import small
from tests.storage.gs_client import point_to

RECORDS = make_records(5)


@pytest.fixture(scope="module")
def examples_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("examples")
    return write_splits(folder, {"train": RECORDS, "eval": RECORDS})


def evaluate(answers: dict[str, tuple[int, dict[int, float]]]) -> Evaluated:
    """Build predictions from file → label id, and probabilities of some label ids."""
    names = sorted(answers)
    probabilities = np.zeros((len(names), len(LABELS)), np.float32)
    for row, name in enumerate(names):
        given = answers[name][1]
        # The others share the rest.
        probabilities[row] = (1 - sum(given.values())) / max(1, len(LABELS) - len(given))
        for column, probability in given.items():
            probabilities[row, column] = probability
    ids = np.array([answers[name][0] for name in names], np.int64)
    texts = tuple("violet" if number < 0 else LABELS[number] for number in ids)
    return Evaluated(
        tuple(names), {"class": texts}, Predictions(LABELS, ids, probabilities), baseline=None
    )


def show_mistakes(
    evaluated: Evaluated, examples_uri: str, *, most: int
) -> tuple[PredictedImage, ...]:
    chosen = choose_images(evaluated, mistakes=most, images=0)
    return show_images(evaluated, chosen, examples_uri, "eval")[0]


def test_the_worst_mistakes_are_shown_with_the_images_as_found(examples_uri: str) -> None:
    images = {record.filename: record.encoded for record in RECORDS}
    first, second, third, unknown, *right = sorted(images)
    answers = {
        first: (0, {1: 0.7, 0: 0.2, 2: 0.1}),
        second: (1, {2: 0.9, 1: 0.1}),
        third: (2, {0: 0.7, 2: 0.3}),
        unknown: (-1, {1: 0.8, 0: 0.2}),
        **dict.fromkeys(right, (0, {0: 1.0})),
    }
    mistakes = show_mistakes(evaluate(answers), examples_uri, most=3)
    assert [mistake.filename for mistake in mistakes] == [second, unknown, first]
    assert [(m.label, m.predicted) for m in mistakes] == [
        (LABELS[1], LABELS[2]),
        ("violet", LABELS[1]),
        (LABELS[0], LABELS[1]),
    ]
    assert [m.confidence for m in mistakes] == pytest.approx([0.9, 0.8, 0.7])
    assert [m.probability for m in mistakes] == pytest.approx([0.1, 0.0, 0.2])
    assert [m.picture for m in mistakes] == [
        make_thumbnail(images[m.filename], side=192) for m in mistakes
    ]
    # Nothing is read where nothing is wrong.
    right_answers = evaluate(dict.fromkeys(images, (0, {0: 1.0})))
    assert show_mistakes(right_answers, "/nowhere", most=9) == ()


def test_mistakes_are_varied(examples_uri: str) -> None:
    """Three of a kind leave room for others, and there are more of them without others."""
    answers = {f"r{number}": (0, {1: 0.9 - number / 100}) for number in range(5)}
    answers["g0"] = (1, {2: 0.5})
    for most, shown in ((4, ["r0", "r1", "r2", "g0"]), (6, [*answers])):
        mistakes = show_mistakes(evaluate(answers), examples_uri, most=most)
        assert [mistake.filename for mistake in mistakes] == shown
        # Files that the examples do not have.
        assert all(mistake.picture is None for mistake in mistakes)


# In the expected order; label ids 0 and 1 are in the matrix, 2 is not.
BROWSED = {
    # One of each pair of the matrix, mistakes first, and one of each other class; then second ones.
    "sure mistake": (0, {1: 0.9}),
    "the other way": (1, {0: 0.7}),
    "right but unsure": (0, {0: 0.6}),
    "hidden mistake": (2, {0: 0.8}),
    "unsure mistake": (0, {1: 0.5}),
    "right": (0, {0: 0.8}),
    "hidden right": (2, {2: 0.4}),
}


@pytest.mark.parametrize("most", [3, 99])
def test_images_to_browse_are_the_most_informative(most: int) -> None:
    evaluated = evaluate(BROWSED)
    chosen = choose_images(evaluated, mistakes=0, images=most, shown=LABELS[:2])
    assert [evaluated.filenames[row] for row in chosen.images] == list(BROWSED)[:most]


def test_only_mistakes_have_heat_maps(examples_uri: str) -> None:
    files = {record.filename: record.encoded for record in RECORDS}
    names = sorted(files)
    evaluated = evaluate({name: (0, {int(name == names[0]): 0.9}) for name in names})
    asked: list[Mapping[str, bytes]] = []
    heat_map = picture_of(np.zeros((8, 8, 3), np.uint8))

    def explain(given: Mapping[str, bytes]) -> Mapping[str, Thumbnail]:
        asked.append(given)
        return dict.fromkeys(given, heat_map)

    chosen = choose_images(evaluated, mistakes=9, images=99)
    mistakes, browsed = show_images(evaluated, chosen, examples_uri, "eval", explain)
    assert asked == [{names[0]: files[names[0]]}]
    assert [mistake.heat_map for mistake in mistakes] == [heat_map]
    assert not any(image.heat_map for image in browsed)
    unseen = PredictedImage("a", "a", "b", 0.5, 0.5, None, heat_map)
    assert keep_within([unseen, unseen], len(heat_map.jpeg)) == (unseen,)


@pytest.mark.parametrize(("split", "asked"), [("eval", "the model"), ("5 folds", "")])
def test_only_the_model_that_was_evaluated_explains_its_mistakes(
    split: str, asked: str, examples_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = []

    def explain(model: str, files: Mapping[str, bytes]) -> dict[str, Thumbnail]:
        models.append(model)
        return {}

    monkeypatch.setattr(pictures, "explain_images", explain)
    monkeypatch.setattr(pictures, "sample_classes", lambda *_, **__: ())
    (tmp_path / REJECTS_FILE).write_text("")
    given: Any = {
        name: SimpleNamespace(uri=uri, get_string_custom_property=lambda _: "/data")
        for name, uri in (("examples", examples_uri), ("transformed_examples", examples_uri))
    }
    given["rejects"] = SimpleNamespace(uri=str(tmp_path))
    evaluated = evaluate({RECORDS[0].filename: (0, {1: 0.9})})
    pictures.gather_pictures(
        given,
        evaluated,
        small().metrics,
        split=split,
        config={},
        preview_fn="json.loads",
        model="the model",
        suspects=None,
    )
    assert models == [asked]


def test_pictures_beyond_the_limit_are_left_out() -> None:
    large = picture_of(np.zeros((8, 8, 3), np.uint8))
    size = len(large.jpeg)
    images = [PredictedImage(str(i), "a", "b", 0.5, 0.5, large) for i in range(4)]
    assert keep_within(images, 3 * size) == tuple(images[:3])
    assert keep_within(images, -1) == ()
    unseen = PredictedImage("no picture", "a", "b", 0.5, 0.5, None)
    assert keep_within([images[0], unseen, images[1]], size) == (images[0], unseen)


def decode_all(canonical: Sequence[bytes]) -> Any:
    return np.stack([simplejpeg.decode_jpeg(file) for file in canonical])


def invert(canonical: Sequence[bytes]) -> tuple[Any, Any]:
    seen = decode_all(canonical)
    return seen, 255 - seen


def test_samples_are_the_first_images_of_the_classes_asked_for(examples_uri: str) -> None:
    vocabulary = ["zero", "one", "two"]
    shown = ["two", "zero", "unheard of"]
    # Three are of the first shard, the fourth one is of the second.
    samples = sample_classes(examples_uri, vocabulary, shown=shown, each=4, preview_images=invert)
    assert [sample.label for sample in samples] == ["two", "zero"]
    for sample in samples:
        number = vocabulary.index(sample.label)
        files = [record.encoded for record in RECORDS if record.label_id == number]
        assert list(sample.seen) == [picture_of(image) for image in decode_all(files[:4])]
        for seen, augmented in zip(sample.seen, sample.augmented, strict=True):
            pixels = [np.asarray(Image.open(io.BytesIO(shown.jpeg))) for shown in (seen, augmented)]
            np.testing.assert_allclose(255 - pixels[1].astype(int), pixels[0], atol=25)


def test_examples_without_an_index_of_images_have_no_samples(tmp_path: Path) -> None:
    uri = write_splits(tmp_path, {"train": RECORDS})
    shutil.rmtree(tmp_path / "records")
    assert sample_classes(uri, LABELS, shown=LABELS, each=1, preview_images=invert) == ()


JPEG = encode(picture(1), "JPEG")


def write_lines(folder: Path, name: str, lines: Sequence[dict[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder)


def reject(path: str) -> dict[str, str]:
    return {"path": path, "category": "truncated", "reason": "JPEG: cut off"}


NO_PICTURE = {
    "above the folder": "../outside.jpg",
    "from the root": "{root}/outside.jpg",
    "gone": "cat/gone.jpg",
    "a folder": "cat",
    "a pipe": "pipe.jpg",
    "too large": "large.jpg",
}


@pytest.mark.parametrize("path", NO_PICTURE.values(), ids=NO_PICTURE.keys())
def test_unreadable_files_do_not_affect_others(
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
def test_an_unreachable_folder_leaves_the_texts(root: str, tmp_path: Path) -> None:
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, [reject("1.jpg"), reject("2.jpg")])
    rejects = show_rejects(uri, root, most=9)
    assert [(entry.path, entry.picture) for entry in rejects] == [("1.jpg", None), ("2.jpg", None)]


def test_reading_stops_at_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at the clock takes a second; a batch is read for every look but the first.
    clock = iter(range(100))
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("components.report.source_pictures.time", ticking)
    monkeypatch.setattr(source_pictures, "_TOTAL_SECONDS", 2)
    names = [f"{number}.jpg" for number in range(3 * 8)]
    for name in names:
        (tmp_path / name).write_bytes(JPEG)
    uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
    rejects = show_rejects(uri, str(tmp_path), most=99)
    assert [entry.picture is not None for entry in rejects] == [True] * 16 + [False] * 8


def test_files_of_a_bucket_are_shown_while_it_responds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GcsServer() as server, point_to(server):
        for name, data in {"a b#1.jpg": JPEG, "empty.jpg": b"", "refused.jpg": JPEG}.items():
            server.put("bucket", f"images/cat/{name}", data)
        server.faults["images/cat/refused.jpg"] = [403]
        names = ["cat/a b#1.jpg", "cat/empty.jpg", "cat/refused.jpg", "cat/gone.jpg"]
        uri = write_lines(tmp_path / "rejects", REJECTS_FILE, list(map(reject, names)))
        rejects = show_rejects(uri, "gs://bucket/images/", most=9)
        assert [entry.picture for entry in rejects] == [make_thumbnail(JPEG), None, None, None]
        monkeypatch.setattr(source_pictures, "_BATCH_SECONDS", 0.2)
        server.latency_ms = 3_000
        assert not any(entry.picture for entry in show_rejects(uri, "gs://bucket/images", most=9))
