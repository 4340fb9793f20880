"""The file of corrections, and what becomes of them while a folder is ingested."""

import hashlib
import logging
import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.contract.configuration import from_json, to_json
from components.contract.errors import DataError, UserError
from components.contract.example import FILENAME, LABEL
from components.ingest.config import IngestConfig
from components.ingest.lookup import list_images, look_up
from components.ingest.source.corrections import (
    Action,
    Correction,
    load_corrections,
    write_corrections,
)
from components.ingest.source.listing import read_listing, write_listing
from components.ingest.write.plan_writer import IngestJob
from components.records.tfrecord import read_features
from components.report.suspects.gathering import read_decided
from tests.ingest.plain import HEADER, Ingested, ingest, write_all
from tests.pictures import write_folder

ONE, TWO = "1" * 64, "ab" * 32
TITLES = "sha256,path,action,from,to,who,when,why"
RELABEL = Correction(
    ONE, "cat/1.jpg", "relabel", "cat", "dog", "Ann", "2026-01-02T03:04:05Z", "a dog"
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    texts = [
        "=1+1",
        "'=x",
        "''",
        "-1",
        " blank, first",
        'a "b"; c',
        "two\nlines\r\n",
        "<b>&é",
        "＝x",
    ]
    rows = [
        replace(RELABEL, sha256=f"{n:064x}", path=text, from_label=text, to_label=text, why=text)
        for n, text in enumerate(texts)
    ]
    path = str(tmp_path / "new" / "c.csv")
    (tmp_path / "link.csv").symlink_to(path)
    write_corrections(
        str(tmp_path / "link.csv"), [*rows, Correction(TWO, "b\udce9.jpg", "unsure", "")]
    )
    assert load_corrections(path).rows == (*rows, Correction(TWO, "b\\udce9.jpg", "unsure", ""))
    cells = Path(path).read_text()
    assert [start for start in ('"=', '"-', '"＝') if start in cells] == []
    assert os.listdir(tmp_path / "new") == ["c.csv"]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError("the disk is full")

    path = tmp_path / "c.csv"
    write_corrections(str(path), [RELABEL])
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=r"Cannot write .*c\.csv: the disk is full"):
        write_corrections(str(path), [])
    assert load_corrections(str(path)).rows == (RELABEL,)
    assert os.listdir(tmp_path) == ["c.csv"]


BY_HAND = {
    "a byte order mark and capitals": f"\ufeffSHA256,Path,Action,From,To\n{ONE},,Remove,cat,\n",
    "semicolons, empty lines": f"sha256;path;action;from;to\r\n\r\n{ONE};;remove;cat;\n;;;;\n",
    "columns in another order": f"action,to,from,path,sha256,why\nremove,,cat,,{ONE},\n",
    "a line twice": f"{TITLES}\n{ONE},,remove,cat,,,,\n{ONE},,remove,dog,,,,\n",
}


@pytest.mark.parametrize("text", BY_HAND.values(), ids=BY_HAND.keys())
def test_reads_what_people_and_spreadsheets_write(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.csv").write_bytes(text.encode())
    first = load_corrections(str(tmp_path / "c.csv")).rows[0]
    assert first == Correction(ONE, "", "remove", "cat")


def test_decisions_that_agree_about_copies_are_no_contradiction(tmp_path: Path) -> None:
    kept = replace(RELABEL, path="dog/1.jpg", action="keep", from_label="dog", to_label="")
    write_corrections(str(tmp_path / "c.csv"), [RELABEL, kept])
    assert load_corrections(str(tmp_path / "c.csv")).rows == (RELABEL, kept)


LINE = f"{ONE},1.jpg,keep,cat,,,,"
MISTAKES: dict[str, tuple[str | bytes, str]] = {
    "no columns": ("", "first line must be sha256,path,action,from,to"),
    "a missing column": ("sha256,path,action,from\n", r"must be .*,to\[,who\].*, but is 'sha256"),
    "an unknown column": (f"{TITLES},color\n", "column 'color' is unknown or occurs twice"),
    "Latin-1": (TITLES.encode() + b"\ncaf\xe9", "not UTF-8 text: save it as UTF-8"),
    "a short digest": (f"{TITLES}\n12,,keep,cat,,,,", "Line 2 .* the sha256 '12': write the 64"),
    "an unknown action": (f"{TITLES}\n{ONE},,drop,cat,,,,", "Line 2 .* 'drop': use keep, relabel,"),
    "no new label": (f"{TITLES}\n\n{ONE},,relabel,cat,,,,", "Line 3 .* but `to` is empty"),
    "a cut line": (f"{TITLES}\n{ONE},,relabel,cat", "Line 2 .* has too few fields"),
    "a comma in why": (f"{TITLES}\n{LINE}a,b", "Line 2 .* has too many fields"),
    "a huge field": (f"{TITLES}\n{LINE}" + "x" * 200_000, "field larger than field limit"),
    "no end of a quote": (f'{TITLES}\n{ONE},a,keep,"cat\n\n', "Line 2 .* has too few fields"),
    "a contradiction": (
        f'{TITLES}\n{ONE},1.jpg,remove,cat,,,,"two\nlines"\n{LINE}',
        r"Lines 2 and 4 of .*c\.csv contradict each other about the image '1\.jpg'",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    (tmp_path / "c.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DataError, match=sentence) as raised:
        load_corrections(str(tmp_path / "c.csv"))
    assert len(str(raised.value)) < 500


def test_a_pipe_neither_blocks_nor_is_replaced(tmp_path: Path) -> None:
    pipe = str(tmp_path / "c.csv")
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"Cannot read .*c\.csv: it is not a regular file\.$"):
        load_corrections(pipe)
    with pytest.raises(UserError, match=r"Cannot write .*c\.csv: it is not a regular file\.$"):
        write_corrections(pipe, [])
    assert os.listdir(tmp_path) == ["c.csv"]


_Decision = tuple[Action, str, str]
SECOND_ROUND: dict[str, tuple[_Decision, _Decision]] = {
    # The action, and the labels seen and chosen; what the file says.
    "kept": (("keep", "dog", ""), ("relabel", "cat", "dog")),
    "another label": (("relabel", "dog", "owl"), ("relabel", "cat", "owl")),
    "back": (("relabel", "dog", "cat"), ("keep", "cat", "")),
    "removed": (("remove", "dog", ""), ("remove", "cat", "")),
    "unsure": (("unsure", "dog", ""), ("unsure", "cat", "")),
    "undone before": (("keep", "cat", ""), ("keep", "cat", "")),
}


@pytest.mark.parametrize(("seen", "kept"), SECOND_ROUND.values(), ids=SECOND_ROUND.keys())
def test_a_second_decision_is_about_the_original_label(seen: _Decision, kept: _Decision) -> None:
    later, expected = (
        Correction(ONE, "cat/1.jpg", action, before, after, "Bob")
        for action, before, after in (seen, kept)
    )
    assert later.after(RELABEL) == expected
    assert later.after(None) == later.after(replace(RELABEL, action="unsure")) == later


FIRST, SECOND = "blue/001.jpeg", "blue/002.jpeg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 pictures, and a copy of the first of the blue ones under red."""
    folder = write_folder(tmp_path / "images", each=20)
    shutil.copy(folder / FIRST, folder / "red" / "copy.jpeg")
    return folder


def decide(folder: Path, path: str, action: Any, to: str = "", **changes: Any) -> Correction:
    digest = hashlib.sha256((folder / path).read_bytes()).hexdigest()
    row = Correction(digest, path, action, path.split("/")[0], to, "Ann", "2026-01-02", "<b>")
    return replace(row, **changes)


def correct(folder: Path, *rows: Correction, name: str = "corrected", **options: Any) -> Ingested:
    path = folder.parent / f"{name}.csv"
    write_corrections(str(path), rows)
    return ingest(folder, folder.parent / name, replace(HEADER, corrections=str(path), **options))


def read_labels(output: Ingested) -> dict[str, tuple[str, str]]:
    """Path → label and split of each image."""
    images = {}
    for path in sorted(output.examples.glob("Split-*/*")):
        for features in read_features(str(path), (FILENAME.encode(), LABEL.encode())):
            name, label = (bytes(features[key.encode()]).decode() for key in (FILENAME, LABEL))
            images[name] = (label, path.parent.name.removeprefix("Split-"))
    return images


def test_labels_change_and_splits_do_not(folder: Path, tmp_path: Path) -> None:
    before = read_labels(ingest(folder, tmp_path / "before"))
    many = [decide(folder, f"green/{n:03}.jpeg", "relabel", "red") for n in (1, 2, 3, 5)]
    output = correct(
        folder,
        decide(folder, FIRST, "relabel", "red"),
        decide(folder, SECOND, "remove"),
        decide(folder, "red/001.jpeg", "keep"),
        decide(folder, "red/002.jpeg", "unsure"),
        *many,
        max_reject_fraction=0,
    )
    moved = {FIRST, *(row.path for row in many)}
    expected = {
        path: ("red" if path in moved else label, split)
        for path, (label, split) in before.items()
        if path != SECOND
    }
    assert read_labels(output) == expected
    assert output.rejected() == [(SECOND, "removed by a correction")]
    # The copy under red has the same label now.
    assert (output.summary["label_conflicts"], output.summary["duplicates"]) == (0, 1)
    counts = {"relabeled": 5, "removed": 1, "kept": 1, "unsure": 1, "not_applied": 0}
    assert counts.items() <= output.summary["corrections"].items()
    first, *_, last = output.lines("corrections.jsonl")
    expected_line = {"result": "relabeled", "files": 2, "from": "blue", "to": "red"}
    assert expected_line.items() <= first.items()
    assert (last["who"], last["why"], last["reason"]) == ("Ann", "<b>", "")
    kept = {first["sha256"], decide(folder, "red/001.jpeg", "keep").sha256}
    assert read_decided(str(output.rejects)) == kept | {row.sha256 for row in many}


def test_who_keeps_a_label_decides_about_all_copies(folder: Path) -> None:
    output = correct(folder, decide(folder, FIRST, "keep"))
    assert read_labels(output)["red/copy.jpeg"][0] == "blue"
    assert (output.summary["label_conflicts"], output.summary["duplicates"]) == (0, 1)
    assert output.summary["corrections"]["kept"] == 1


def test_workers_make_no_difference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        decide(folder, FIRST, "relabel", "red"),
        decide(folder, SECOND, "remove", from_label="red"),
        decide(folder, "green/001.jpeg", "remove"),
    ]
    first = correct(folder, *rows, min_shards=3)

    def write_elsewhere(numbers: Sequence[int], job: IngestJob) -> None:
        write_all([*reversed(numbers)], pickle.loads(pickle.dumps(job)))

    monkeypatch.setattr("tests.ingest.plain.write_all", write_elsewhere)
    again = correct(folder, *rows, min_shards=3)
    assert [again.shards(s) for s in again.counts] == [first.shards(s) for s in first.counts]
    assert again.lines("corrections.jsonl") == first.lines("corrections.jsonl")


def test_a_correction_that_does_not_fit_is_listed(folder: Path, tmp_path: Path) -> None:
    (folder / "red" / "broken.jpeg").write_bytes(b"broken")
    rows = [
        decide(folder, FIRST, "relabel", "grean"),
        decide(folder, SECOND, "relabel", "red", from_label="green"),
        decide(folder, "blue/003.jpeg", "remove", from_label="red"),
        decide(folder, "green/001.jpeg", "relabel", "green", from_label="red"),
        decide(folder, "red/001.jpeg", "keep", from_label="green"),
        decide(folder, FIRST, "keep", sha256="0" * 64),
        decide(folder, "red/broken.jpeg", "relabel", "blue"),
        decide(folder, "green/002.jpeg", "relabel", "red", from_label=""),
    ]
    output = correct(folder, *rows, max_reject_fraction=0.1)
    plain = read_labels(
        ingest(folder, tmp_path / "plain", replace(HEADER, max_reject_fraction=0.1))
    )
    assert read_labels(output) == plain | {"green/002.jpeg": ("red", plain["green/002.jpeg"][1])}
    assert [line["reason"] for line in output.lines("corrections.jsonl")] == [
        "no class is called 'grean': give a new class an image first",
        "the label is 'blue', not 'green'",
        "the label is 'blue', not 'red'",
        "the label is already 'green'",
        "the label is 'red', not 'green'",
        "no file has this content",
        "the file was rejected: not an image",
        "",
    ]
    assert output.summary["corrections"]["not_applied"] == 7
    assert (
        output.summary["corrections"]["reasons"][1] == f"{SECOND}: the label is 'blue', not 'green'"
    )
    assert read_decided(str(output.rejects)) == {rows[3].sha256, rows[-1].sha256}
    # A broken file may be removed.
    output = correct(folder, decide(folder, "red/broken.jpeg", "remove"), max_reject_fraction=0)
    assert output.rejected() == [("red/broken.jpeg", "removed by a correction")]


def test_a_class_may_vanish_two_must_stay(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(folder.glob("*/*"))]
    green = [decide(folder, path, "relabel", "red") for path in paths if path.startswith("green")]
    with caplog.at_level(logging.WARNING):
        output = correct(folder, *green)
    images = read_labels(output)
    assert {label for label, _ in images.values()} == {"blue", "red"}
    assert "Class 'green' of " in caplog.text
    blue = [decide(folder, path, "remove") for path in paths if path.startswith("blue")]
    with pytest.raises(DataError, match=r"corrected\.csv has images of 1 class: two are needed"):
        correct(folder, *green, *blue)
    trained = [row for row in green if images[row.path][1] == "train"]
    with pytest.raises(DataError, match=r"'green' of .* as corrected by .* no usable image"):
        correct(folder, *trained)


def test_the_listing_holds_the_corrections(folder: Path, tmp_path: Path) -> None:
    plain, path = list_images(str(folder), HEADER), tmp_path / "c.csv"
    write_corrections(str(path), [decide(folder, FIRST, "remove")])
    listing = list_images(str(folder), replace(HEADER, corrections=str(path)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert listing.fingerprint() == f"{plain.fingerprint()},corrections:{digest}"
    assert read_listing(write_listing(listing, str(tmp_path / "listings"))) == listing


def test_moving_the_file_does_not_ingest_again(folder: Path, tmp_path: Path) -> None:
    def key(place: Path, action: str = "remove", *, listings: str) -> dict[str, Any]:
        write_corrections(str(place), [decide(folder, FIRST, action)])
        config = to_json(replace(HEADER, corrections=str(place)))
        given = {"input_base": str(folder), "config": config, "listings": listings}
        return given | look_up({}, given)

    listings = str(tmp_path / "listings")
    first = key(tmp_path / "a" / "c.csv", listings=listings)
    assert key(tmp_path / "b" / "c.csv", listings=listings) == first
    assert key(tmp_path / "a" / "c.csv", "keep", listings=listings) != first
    # Without a listing, the executor reads the file again.
    alone = from_json(IngestConfig, key(tmp_path / "a" / "c.csv", listings="")["config"])
    assert alone.corrections == str(tmp_path / "a" / "c.csv")
