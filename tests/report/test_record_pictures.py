"""Pictures of mistakes and of training images, from records."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from components.evaluation.metrics.predictions import Evaluated, Predictions
from components.images.thumbnails import make_thumbnail, picture_of
from components.report.pictures.class_samples import sample_classes
from components.report.pictures.mistakes import show_mistakes
from tests.report.records import LABELS, make_records, write_splits

RECORDS = make_records(5)


@pytest.fixture(scope="module")
def examples_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("examples")
    return write_splits(folder, {"train": RECORDS, "eval": RECORDS})


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
    found = show_mistakes(evaluate(answers), examples_uri, "eval", most=3)
    assert [mistake.filename for mistake in found] == [second, unknown, first]
    assert [(m.label, m.predicted) for m in found] == [
        (LABELS[1], LABELS[2]),
        ("violet", LABELS[1]),
        (LABELS[0], LABELS[1]),
    ]
    assert [m.confidence for m in found] == pytest.approx([0.9, 0.8, 0.7])
    assert [m.probability for m in found] == pytest.approx([0.1, 0.0, 0.2])
    assert [m.picture for m in found] == [make_thumbnail(images[m.filename]) for m in found]
    # Nothing is read where nothing is wrong.
    right_answers = evaluate(dict.fromkeys(images, (0, {0: 1.0})))
    assert show_mistakes(right_answers, "/nowhere", "eval", most=9) == ()


VARIED = {
    "three of a kind leave room for others": (4, ["r0", "r1", "r2", "g0"]),
    "more of a kind where there are no others": (6, ["r0", "r1", "r2", "r3", "r4", "g0"]),
    "all of them": (99, ["r0", "r1", "r2", "r3", "r4", "g0"]),
    "none": (0, []),
}


@pytest.mark.parametrize(("most", "shown"), VARIED.values(), ids=VARIED.keys())
def test_mistakes_of_several_kinds_are_shown(
    most: int, shown: list[str], examples_uri: str
) -> None:
    answers = {f"r{number}": (0, {1: 0.9 - number / 100}) for number in range(5)}
    answers["g0"] = (1, {2: 0.5})
    found = show_mistakes(evaluate(answers), examples_uri, "eval", most=most)
    assert [mistake.filename for mistake in found] == shown
    # Files that the examples do not have.
    assert all(mistake.picture is None for mistake in found)


def decode_all(canonical: Sequence[bytes]) -> Any:
    return np.stack([simplejpeg.decode_jpeg(file) for file in canonical])


def invert(canonical: Sequence[bytes]) -> tuple[Any, Any]:
    seen = decode_all(canonical)
    return seen, 255 - seen


def keep(canonical: Sequence[bytes]) -> tuple[Any, Any]:
    seen = decode_all(canonical)
    return seen, seen


def test_samples_are_the_first_images_of_the_classes_asked_for(examples_uri: str) -> None:
    vocabulary = ["zero", "one", "two"]
    shown = ["two", "zero", "unheard of"]
    # Three are of the first shard, the fourth one is of the second.
    found = sample_classes(examples_uri, vocabulary, shown=shown, each=4, preview_images=invert)
    assert [sample.label for sample in found] == ["two", "zero"]
    for sample in found:
        number = vocabulary.index(sample.label)
        files = [record.encoded for record in RECORDS if record.label_id == number]
        assert list(sample.seen) == [picture_of(image) for image in decode_all(files[:4])]
        for seen, augmented in zip(sample.seen, sample.augmented, strict=True):
            pixels = [np.asarray(Image.open(io.BytesIO(shown.jpeg))) for shown in (seen, augmented)]
            np.testing.assert_allclose(255 - pixels[1].astype(int), pixels[0], atol=25)


def test_a_class_shows_as_many_as_there_are(examples_uri: str) -> None:
    vocabulary = ["a", "b", "c"]
    [sample] = sample_classes(examples_uri, vocabulary, shown=["b"], each=999, preview_images=keep)
    assert len(sample.seen) == 5
    assert sample.unchanged


def test_examples_without_an_index_of_images_have_no_samples(tmp_path: Path) -> None:
    uri = write_splits(tmp_path, {"train": RECORDS})
    shutil.rmtree(tmp_path / "records")
    assert sample_classes(uri, LABELS, shown=LABELS, each=1, preview_images=invert) == ()
