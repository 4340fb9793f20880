"""Files through the flow, with models that record their batches."""

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pytest

from components.contract.errors import DataError
from components.images.check import check_image
from components.images.check_result import CheckedImage
from components.images.options import FileOptions
from components.ingest.config import IngestConfig
from components.predict import flow
from components.predict.files import Source, count_files, find_sources
from components.predict.flow import FileOutcome, StatusCounts
from components.predict.model import Answer
from components.records.tfrecord import read_features
from tests.files import write_files
from tests.ingest.plain import ingest
from tests.pictures import encode, picture, turned, write_folder

OPTIONS = FileOptions(threads=2)


class RecordingModel:
    """A model that predicts the number of the image and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def predict(self, images: Sequence[bytes]) -> list[Answer | str]:
        first = sum(map(len, self.batches))
        self.batches.append(list(images))
        numbers = range(first, first + len(images))
        return [Answer(((str(number), 1.0),)) for number in numbers]

    @property
    def received(self) -> list[bytes]:
        return [image for batch in self.batches for image in batch]


def write_odd_folder(folder: Path) -> Path:
    """Write two classes, as `a` and `b`, of images that ingest keeps, transcodes and rejects."""
    image = picture(1, height=40, width=60)
    jpeg = encode(image, "JPEG")
    files = {
        "a/bitmap.bmp": encode(image, "BMP"),
        "a/cmyk.jpg": encode(image.convert("CMYK"), "JPEG"),
        "a/gray.png": encode(image.convert("L"), "PNG"),
        "a/plain.jpg": jpeg,
        "a/tagged.tiff": encode(image, "TIFF"),
        "a/turned.jpg": encode(picture(2), "JPEG", exif=turned(6)),
        "a/web.webp": encode(picture(3), "WEBP", lossless=True),
        "b/clear.png": encode(picture(4).convert("RGBA"), "PNG"),
        "b/cut.jpg": jpeg[: len(jpeg) // 2],
        "b/deep/er.gif": encode(picture(5), "GIF"),
        "b/empty.jpg": b"",
        "b/palette.png": encode(picture(6).convert("P"), "PNG"),
        "b/words.jpg": b"no image",
        "b/.DS_Store": b"",
    }
    write_files(folder, files)
    (folder / "b" / "broken_link.png").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(folder) + b"/a/\xff\n.jpg")).write_bytes(jpeg)
    return folder


def ask(
    sources: list[Source], model: Any, options: FileOptions = OPTIONS, batch: int = 64
) -> list[FileOutcome]:
    tally = StatusCounts(count_files(sources))
    with mock.patch.object(flow, "_BATCH_IMAGES", batch):
        return list(tally.count(flow.predict(sources, model.predict, options)))


def test_the_model_gets_what_it_got_in_training(tmp_path: Path) -> None:
    options = IngestConfig(max_reject_fraction=1, shrink=16)
    folder = write_odd_folder(tmp_path / "images")
    ingested = ingest(folder, tmp_path / "out", options)
    trained = {
        bytes(features[b"image/filename"]): bytes(features[b"image/encoded"])
        for path in ingested.examples.glob("Split-*/*")
        for features in read_features(str(path), {b"image/filename", b"image/encoded"})
    }
    model = RecordingModel()
    outcomes = ask(find_sources([str(folder)]), model, options)
    names = [outcome.file.removeprefix(f"{folder}/") for outcome in outcomes]
    assert names == sorted(names)
    answered = [
        name.encode("utf-8", "surrogateescape")
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome.status == "answered"
    ]
    assert len(answered) == 11
    assert dict(zip(answered, model.received, strict=True)) == trained
    for status, file in (("refused", "rejects.jsonl"), ("skipped", "skipped.jsonl")):
        listed = [
            {"path": name, "category": outcome.category, "reason": outcome.reason}
            for name, outcome in zip(names, outcomes, strict=True)
            if outcome.status == status
        ]
        assert listed == [{"category": "", **line} for line in ingested.lines(file)]


def test_files_folders_and_urls_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=3)
    named = [f"file://{folder}/red/002.jpeg", str(folder / "blue"), str(folder / "red/001.jpeg")]
    bucket = fsspec.filesystem("memory")
    for number in range(40):
        bucket.pipe_file(f"/predict/{number:02d}.jpg", encode(picture(number), "JPEG"))
    bucket.pipe_file("/me:secret@host/a.jpg", encode(picture(7), "JPEG"))
    named += ["memory://predict/07.jpg", "memory://me:secret@host", "memory://predict"]
    model = RecordingModel()
    outcomes = ask(find_sources(named), model, batch=8)
    assert [outcome.file for outcome in outcomes] == [
        named[0],
        *(f"{folder}/blue/{name}" for name in ("000.png", "001.jpeg", "002.jpeg")),
        named[2],
        named[3],
        "memory://host/a.jpg",
        *(f"memory://predict/{number:02d}.jpg" for number in range(40)),
    ]
    # Each answer belongs to its file.
    assert [outcome.ranking[0][0] for outcome in outcomes] == [str(n) for n in range(47)]
    assert [len(batch) for batch in model.batches] == [8] * 5 + [7]
    assert model.received[5] == model.received[7 + 7]


def test_a_file_that_is_not_there_is_a_mistake_and_a_hidden_one_that_is_named_is_meant(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        find_sources([str(tmp_path / "nowhere.jpg")])
    with pytest.raises(DataError, match="There are no files in"):
        find_sources([str(tmp_path)])
    (tmp_path / ".hidden.jpg").write_bytes(encode(picture(1), "JPEG"))
    [outcome] = ask(find_sources([str(tmp_path / ".hidden.jpg")]), RecordingModel())
    assert outcome.status == "answered"


def test_large_images_make_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(encode(picture(number), "JPEG"))
    model = RecordingModel()
    # Of 24 x 32 pixels each.
    monkeypatch.setattr(flow, "BATCH_PIXELS", 2 * 24 * 32)
    ask(find_sources([str(tmp_path)]), model)
    assert [len(batch) for batch in model.batches] == [2, 2, 2]
    monkeypatch.setattr(flow, "BATCH_PIXELS", 1)
    assert len(ask(find_sources([str(tmp_path)]), model)) == 6


@pytest.mark.slow
def test_what_waits_for_a_slow_model_does_not_grow_with_the_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / f"{number:03d}.jpg").write_bytes(b"")
    checked = itertools.count()
    image = check_image(encode(picture(1), "JPEG"), OPTIONS)
    done = 0

    def count(*_: Any) -> CheckedImage:
        nonlocal done
        # One step of the interpreter, whichever thread it is.
        done = next(checked) + 1
        return image

    monkeypatch.setattr(flow, "usable", lambda content: content)
    monkeypatch.setattr(flow, "check_image", count)
    most: list[int] = []

    class Slow(RecordingModel):
        def predict(self, images: Sequence[bytes]) -> list[Answer | str]:
            time.sleep(0 if self.batches else 0.3)
            most.append(done - len(self.received))
            return super().predict(images)

    model = Slow()
    assert len(ask(find_sources([str(tmp_path)]), model, batch=8)) == 500
    # One batch asked about, two ready, tasks of 16 on their way: not all that could be.
    assert max(most) <= 8 * 3 + 16 * 8 < 500 / 3


def test_what_a_model_cannot_read_is_refused_and_costs_no_other_image(tmp_path: Path) -> None:
    write_folder(tmp_path, each=4, labels=("red",))

    class Picky(RecordingModel):
        def predict(self, images: Sequence[bytes]) -> list[Answer | str]:
            return [answer if n != 2 else "bad" for n, answer in enumerate(super().predict(images))]

    outcomes = ask(find_sources([str(tmp_path)]), Picky())
    assert [outcome.status for outcome in outcomes] == [*["answered"] * 2, "refused", "answered"]
    assert (outcomes[2].category, outcomes[2].reason) == ("unreadable", "bad")


def test_a_lost_file_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="3 files, but 1 outcomes"):
        list(StatusCounts(3).count([FileOutcome("a", "answered")]))
