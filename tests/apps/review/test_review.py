"""The review over real connections, and what it leaves in the corrections file."""

import dataclasses
import io
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import local_runner
from components.contract.configuration import to_dict
from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID, SHA256
from components.contract.image_tables import SUSPECTS_FILE, Suspect
from components.ingest.source.corrections import Correction, load_corrections, write_corrections
from components.records.record_index import write_indexed_shard
from components.records.shard_files import write_index
from pipeline_def.apps.review.command import prepare
from pipeline_def.apps.review.decisions import Decisions, gather_images
from pipeline_def.apps.review.options import ReviewOptions
from pipeline_def.apps.review.pictures import Records
from pipeline_def.config.command_line import parse
from pipeline_def.runs.history import SelectedRun
from pipeline_def.runs.record import read_records, write_record
from tests.apps.review.reviewed import SHARD, digest, draw_images, reviewing, suspect, write_output
from tests.apps.serve.serving import ask
from tests.conftest import Refusal
from tests.local.run_samples import write_run
from tests.pictures import encode, picture, png_bomb, turned
from tests.repository import ROOT

IMAGES = draw_images(7)
PATHS = list(IMAGES)
DIGESTS = [digest(data) for data in IMAGES.values()]
FILE = "corrections.csv"


def make_output(folder: Path) -> Path:
    """Write five suspects, the most probable first, and two images that are none."""
    rows = [suspect(PATHS[n], IMAGES[PATHS[n]], 0.9 - n / 10) for n in range(5)]
    rows[0] = suspect(PATHS[0], IMAGES[PATHS[0]], 0.9, neighbors=(PATHS[6], "gone.jpg"))
    return write_output(folder, IMAGES, rows)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return make_output(tmp_path)


@pytest.fixture
def port(output: Path) -> Iterator[int]:
    with reviewing(output) as port:
        yield port


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """A review in which nothing is decided."""
    output = make_output(tmp_path_factory.mktemp("shared"))
    with reviewing(output) as port:
        yield port, output


def decide(port: int, number: int, action: str = "keep", **fields: Any) -> tuple[int, Any]:
    body = {"sha256": DIGESTS[number], "action": action, **fields}
    return post(port, "/api/decisions", body)


def post(port: int, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    fields: dict[str, Any] = {"Content-Type": "application/json", **headers}
    return ask(port, path, body, **fields)


def show(port: int, name: str, size: str = "large") -> Image.Image:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/pictures/{name}?size={size}") as it:
        assert it.headers["content-type"] == "image/jpeg"
        return Image.open(io.BytesIO(it.read()))


def summarize(output: Path) -> list[tuple[int, str, str]]:
    rows = load_corrections(str(output / FILE)).rows
    return [(DIGESTS.index(row.sha256), row.action, row.to_label) for row in rows]


def test_decisions_are_in_the_file_before_the_answer(port: int, output: Path) -> None:
    _, listed = ask(port, "/api/images")
    assert [image["sha256"] for image in listed["images"]] == DIGESTS[:5]
    assert listed["labels"] == ["blue", "green", "red"]
    shown = {"path": PATHS[0], "label": 0, "proposed": 2}
    assert shown.items() <= listed["images"][0].items()
    assert decide(port, 0, "relabel", to="red")[0] == 200
    assert decide(port, 1, "remove", note=" seen\ttwice ")[0] == 200
    assert decide(port, 2)[0] == decide(port, 3, "unsure")[0] == 200
    rows = load_corrections(str(output / FILE)).rows
    said = ("ann", rows[0].when, "label 0.90")
    assert rows[0] == Correction(DIGESTS[0], PATHS[0], "relabel", "blue", "red", *said)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", rows[0].when)
    assert rows[1].why == "seen twice (label 0.80)"
    decide(port, 0, "unsure")
    actions = ("unsure", "remove", "keep", "unsure")
    assert sorted(summarize(output)) == [(n, action, "") for n, action in enumerate(actions)]


def test_undo_restores_what_was_there_before(port: int, output: Path) -> None:
    for number, to in ((0, "red"), (1, "blue"), (0, "green")):
        decide(port, number, "relabel", to=to)
    _, undone = post(port, "/api/undo", {})
    assert (undone["sha256"], undone["decision"]["to"]) == (DIGESTS[0], "red")
    _, undone = post(port, "/api/undo", {"sha256": DIGESTS[0]})
    assert undone["decision"] is None
    with reviewing(output) as restarted:
        assert post(restarted, "/api/undo", {})[1]["sha256"] == DIGESTS[1]
        assert summarize(output) == []
        assert post(restarted, "/api/undo", {})[0] == 409


def test_what_a_person_edits_meanwhile_stays(port: int, output: Path) -> None:
    other = Correction("f" * 64, "a/stranger.jpg", "remove", "")
    decide(port, 0)
    decide(port, 1)
    _, before = ask(port, "/api/decisions")
    [first, second] = load_corrections(str(output / FILE)).rows
    write_corrections(str(output / FILE), [other, first])
    _, answer = decide(port, 2, "unsure")
    assert answer["before"] != before["version"], "the page reads everything again"
    assert load_corrections(str(output / FILE)).rows[:2] == (other, first)
    assert [*ask(port, "/api/decisions")[1]["decisions"]] == [DIGESTS[0], DIGESTS[2]]
    version = ask(port, "/api/decisions")[1]["version"]
    assert ask(port, f"/api/decisions?version={version}")[1] == {"version": version}
    assert second.sha256 == DIGESTS[1]


def test_an_unreadable_file_is_left_alone(port: int, output: Path) -> None:
    decide(port, 0)
    (output / FILE).write_text("not a table")
    status, answer = decide(port, 1)
    assert status == 409
    assert "corrections.csv" in answer["error"]
    assert (output / FILE).read_text() == "not a table"


def test_two_reviews_of_one_file_lose_nothing(output: Path) -> None:
    known = [f"{number:064x}" for number in range(16)]
    reviews = [Decisions(str(output / FILE), known) for _ in range(2)]

    def work(review: Decisions, digests: list[str]) -> None:
        for sha256 in digests:
            review.decide(Correction(sha256, "a.jpg", "keep", "a"))

    with ThreadPoolExecutor() as threads:
        [*threads.map(work, reviews, (known[::2], known[1::2]))]
    assert sorted(reviews[0].read()[1]) == known


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        pytest.param("/api/decisions", {"sha256": "0" * 64}, {}, 404, id="unknown digest"),
        pytest.param("/api/decisions", {"sha256": ["x"]}, {}, 404, id="no digest"),
        pytest.param("/api/decisions", {"action": "drop"}, {}, 400, id="unknown action"),
        pytest.param("/api/decisions", {"action": ["keep"]}, {}, 400, id="a list as action"),
        pytest.param("/api/decisions", {"to": "a\x00b"}, {}, 400, id="unknown label"),
        pytest.param("/api/decisions", {"to": "blue"}, {}, 400, id="the given label"),
        pytest.param("/api/decisions", {"to": {}}, {}, 400, id="no label"),
        pytest.param("/api/decisions", {"note": "x" * 3000, "to": "red"}, {}, 400, id="long note"),
        pytest.param("/api/decisions", {"note": "x" * 70_000}, {}, 413, id="large body"),
        pytest.param("/api/decisions", b"[" * 9000, {}, 400, id="deep JSON"),
        pytest.param("/api/decisions", [], {}, 400, id="a list"),
        pytest.param("/api/undo", {"sha256": "../../x"}, {}, 404, id="undo of another image"),
        pytest.param("/api/undo", {}, {"Origin": "https://evil.example"}, 403, id="origin"),
        pytest.param("/api/undo", {}, {"Sec-Fetch-Site": "same-site"}, 403, id="no origin"),
        pytest.param("/api/undo", {}, {"Host": "evil.example"}, 403, id="DNS rebinding"),
        pytest.param("/api/undo", {}, {"Content-Type": "text/plain"}, 415, id="a plain form"),
    ],
)
def test_what_is_refused_changes_nothing(
    shared: tuple[int, Path], path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    port, output = shared
    if isinstance(body, dict) and path == "/api/decisions":
        body = {"sha256": DIGESTS[0], "action": "relabel", **body}
    answered, answer = post(port, path, body, **headers)
    assert answered == status
    assert answer["error"].endswith(".")
    assert not (output / FILE).exists()


def test_a_picture_comes_from_the_folder_or_the_record_of_the_run(port: int, output: Path) -> None:
    assert show(port, DIGESTS[0]).size == (32, 24)
    (output.parent / "images" / PATHS[1]).write_bytes(IMAGES[PATHS[5]])
    (output.parent / "images" / PATHS[2]).unlink()
    for number in (1, 2):
        original = Image.open(io.BytesIO(IMAGES[PATHS[number]]))
        difference = np.asarray(show(port, DIGESTS[number]), int) - np.asarray(original, int)
        assert np.abs(difference).mean() < 3
    (output / "artifacts" / "examples" / "index.json").unlink()
    with reviewing(output) as other:
        show(other, DIGESTS[3])
        for number, why in ((1, "has changed"), (2, "is gone")):
            status, answer = ask(other, f"/api/pictures/{DIGESTS[number]}")
            assert (status, why in answer["error"]) == (404, True)


def test_an_image_whose_name_is_not_utf_8_comes_from_the_record_of_the_run(tmp_path: Path) -> None:
    examples, data = str(tmp_path), IMAGES[PATHS[0]]
    row = {ENCODED: data, FILENAME: b"a/\xff.jpg", SHA256: DIGESTS[0], LABEL: "a", LABEL_ID: 0}
    write_index(examples, {"train": {SHARD: write_indexed_shard(examples, "train", SHARD, [row])}})
    assert Records(examples, ["a/\\xff.jpg"]).read("a/\\xff.jpg") == data


def test_neighbors_have_labels_and_pictures_and_other_images_are_not_shown(
    shared: tuple[int, Path],
) -> None:
    port, _ = shared
    for name in (DIGESTS[5], "..%2f..%2fetc%2fpasswd", PATHS[0], "x"):
        assert ask(port, f"/api/pictures/{name}")[0] == 404
    _, answer = ask(port, f"/api/images/{DIGESTS[0]}/neighbors")
    assert answer["neighbors"] == [
        {"path": PATHS[6], "sha256": DIGESTS[6], "label": "blue"},
        {"path": "gone.jpg", "sha256": "", "label": ""},
    ]
    assert show(port, DIGESTS[6], "small").size == (32, 24)


def test_pictures_are_upright_reduced_and_harmless(tmp_path: Path) -> None:
    large = picture(1, height=1600, width=2400)
    images = {
        "a/turned.jpg": encode(large, "JPEG", exif=turned(6)),
        "a/bomb.png": png_bomb(60_000, 60_000),
        "a/scans.jpg": encode(picture(2), "JPEG")[:-2] + b"\xff\xda\x00\x02" * 5000 + b"\xff\xd9",
        "a/text.jpg": b"<svg onload=alert(1)>",
    }
    rows = [suspect(path, data, 0.5) for path, data in images.items()]
    output = write_output(tmp_path, images, rows, ["a", "red"])
    with reviewing(output) as port:
        turned_image, *hostile = map(digest, images.values())
        assert show(port, turned_image).size == (667, 1000)
        assert show(port, turned_image, "small").size == (107, 160)
        for name in hostile:
            assert ask(port, f"/api/pictures/{name}")[0] == 422


def test_images_are_joined_and_sorted() -> None:
    def row(path: str, reason: Any, score: float, proposed: str = "") -> Suspect:
        return Suspect(digest(path.encode()), path, "train", "a", reason, score, proposed)

    rows = [row("x", "dark", 0.99), row("y", "label", 0.4, "b"), row("z", "label", 0.7, "c")]
    rows += [row("y", "blurred", 0.8)]
    images = gather_images(rows)
    assert [image.path for image in images] == ["z", "y", "x"]
    assert [name for name, _ in images[1].reasons] == ["label", "blurred"]
    assert images[1].explain() == "label 0.40; blurred 0.80"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--corrections", "{}/index.html"], "Cannot read the corrections file"),
        (["--corrections", "{}"], "it is not a regular file"),
        (["--corrections", "/dev/full"], "/dev/full: it is not a regular file"),
        (["--apply-to", "gs://bucket/copy"], "--apply-to is gs://bucket/copy, which is not supp"),
        (["--output", "/nowhere"], "/nowhere has no runs"),
        (["--port", "70000"], "port is 70000"),
    ],
)
def test_a_mistake_gets_a_sentence(
    shared: tuple[int, Path], arguments: list[str], says: str, refusal: Refusal
) -> None:
    _, output = shared
    (output / "index.html").write_text("<html>")
    words = [word.format(output) for word in arguments]
    assert says in refusal("review", "--output", output, *words)


def test_without_suspects_there_is_nothing_to_review_and_damaged_ones_get_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    output = write_output(tmp_path, draw_images(1), [])
    assert local_runner.main(["review", "--output", str(output)]) == 0
    assert "nothing to review" in capsys.readouterr().out
    (output / "artifacts" / "suspects" / SUSPECTS_FILE).write_bytes(b"PAR1")
    said = refusal("review", "--output", output)
    assert f"Cannot read {output}/artifacts/suspects/{SUSPECTS_FILE}: " in said


@pytest.mark.parametrize(
    ("used", "named", "file"),
    [
        (None, None, "/out/corrections.csv"),
        ("/mine.csv", None, "/mine.csv"),
        ("/mine.csv", "/other.csv", "/other.csv"),
        # The record of an output at a URL, read in its working copy.
        ("/copy/corrections.csv", None, "/out/corrections.csv"),
    ],
)
def test_the_corrections_of_a_run_are_continued(
    tmp_path: Path, used: str | None, named: str | None, file: str
) -> None:
    record = write_run(tmp_path, 1, configuration={"ingest": {"corrections": used}})
    options = ReviewOptions(output="/out", corrections=named)
    assert options.find_corrections(SelectedRun(record, "/copy", 1)) == file


def test_the_next_command_repeats_the_options_of_the_run(output: Path) -> None:
    [record] = read_records(str(output))
    words = ["--data", record.data.folder, "--training.epochs", "3", "--cache", "false"]
    words += ["--ingest.exclude", "['a b', é]", "--ingest.shrink", "null"]
    config, _ = parse(words, prog="", usage="")
    write_record(dataclasses.replace(record, configuration=to_dict(config)), str(output))
    prepared = prepare(ReviewOptions(output=str(output)))
    assert prepared
    said = shlex.split(prepared[0].next_command.removeprefix("uv run local_runner.py "))
    again, _ = parse(said, prog="", usage="")
    ingest = dataclasses.replace(again.ingest, corrections=None)
    given = [name for name in again.given if name not in ("output", "ingest.corrections")]
    again = dataclasses.replace(again, output=config.output, ingest=ingest, given=given)
    assert again == config


@pytest.mark.slow
def test_ctrl_c_ends_with_the_next_command(output: Path) -> None:
    write_corrections(str(output / FILE), [Correction(DIGESTS[1], PATHS[1], "unsure", "green")])
    words = ("review", "--output", str(output), "--port", "0")
    command = [sys.executable, "local_runner.py", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [*itertools.islice(process.stdout, 4)]
        os.kill(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert "5 images of run 1" in lines[0]
    assert "1 of them decided" in lines[0]
    assert "1 of 5 images: 1 unsure" in rest
    assert f"--ingest.corrections {output}/{FILE}" in rest
    assert process.returncode in (0, 130)
