import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfx import types
from tfx.types import standard_artifacts

from components.contract.artifact_files import CARD_FILE, write_text
from components.contract.model_files import PUSHED_CARD
from components.contract.tfx_classes import Markdown
from components.evaluation.baseline_lookup import find_baseline, find_unusable
from components.push import executor, versions
from components.push.executor import Executor
from components.storage.folder import replace_file
from components.storage.folder_listing import find_files
from components.storage.saved_model import FILES, model_digest, read_candidate, whole_versions
from components.storage.transfer import remove_file
from tests.evaluation.saved_model_sample import saved_model
from tests.files import write_files
from tests.storage.s3_server import serve_s3

CARD = "# Katze, قطة\n"
PUSHED = [PUSHED_CARD, "assets.extra", "saved_model.pb", "variables"]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A folder of a bucket."""
    with serve_s3("bucket"):
        yield "minio://bucket/run"


def make_card(uri: str, text: str = CARD) -> types.Artifact:
    artifact = Markdown()
    artifact.uri = uri
    write_text(text, uri, CARD_FILE)
    return artifact


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Folder of an artifact."""
    return saved_model(tmp_path / "model" / "Format-Serving", weights=b"weights").parent


def push(
    model: Path,
    destination: str,
    archive: Path,
    *,
    card: types.Artifact | None = None,
    blessed: bool = True,
    formats: str = "",
    key: str = "",
) -> types.Artifact:
    """Push the model that lies in `model`/Format-Serving."""
    artifact, blessing = standard_artifacts.Model(), standard_artifacts.ModelBlessing()
    artifact.uri = str(model)
    blessing.set_int_custom_property("blessed", int(blessed))
    blessing.set_string_custom_property("formats", formats)
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(archive)
    Executor().Do(
        {"model": [artifact], "model_blessing": [blessing], **({"card": [card]} if card else {})},
        {"pushed_model": [pushed]},
        {
            "push_destination": json.dumps({"filesystem": {"base_directory": destination}}),
            **({"training_key": key} if key else {}),
        },
    )
    return pushed


def write_model(folder: Path, factor: float) -> Path:
    """Save a model that multiplies by a variable; return the folder of the artifact."""

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(factor)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def __call__(self, number: tf.Tensor) -> tf.Tensor:
            return number * self.factor

    tf.saved_model.save(Model(), str(folder / "Format-Serving"))
    return folder


def test_the_card_lies_beside_a_model_that_loads(tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    model = write_model(tmp_path / "model", 3.0)
    card = make_card(str(tmp_path / "card"))
    pushed = push(model, str(tmp_path / "pushed"), tmp_path / "archive", card=card)
    [version] = (tmp_path / "pushed").glob("[0-9]*")
    assert pushed.get_string_custom_property("pushed_destination") == str(version)
    assert (version / PUSHED_CARD).read_text(encoding="utf-8") == CARD
    assert tf.saved_model.load(str(version))(2.0).numpy() == 6.0
    assert not (tmp_path / "archive" / PUSHED_CARD).exists()


def test_the_candidate_is_noted_with_its_version(model: Path, tmp_path: Path) -> None:
    folder, digest = str(tmp_path / "pushed"), model_digest(str(model / "Format-Serving"))
    push(model, folder, tmp_path / "archive", blessed=False, key="k")
    assert read_candidate(folder, "k") == (digest, "")
    push(model, folder, tmp_path / "archive", key="k")
    assert read_candidate(folder, "k") == (digest, os.path.basename(next(whole_versions(folder))))


def test_accepted_formats_are_pushed_and_refused_ones_do_not_stay(
    model: Path, tmp_path: Path
) -> None:
    rest = ["formats.json", "golden", "labels.txt"]
    files = ("model.onnx", "int8.tflite", "labels.txt", "formats.json", "golden/0.png")
    write_files(model / "Format-Exports", {name: name for name in files})
    for kinds, expected in (
        ("", None),
        ("int8", [*rest, "int8.tflite"]),
        ("int8,onnx", [*rest, "int8.tflite", "model.onnx"]),
        ("onnx", [*rest, "model.onnx"]),
        ("", None),
        ("int8", [*rest, "int8.tflite"]),
    ):
        # From the second time on the version exists, as after a kill or a stricter configuration.
        pushed = tmp_path / "pushed"
        push(model, str(pushed), tmp_path / "archive", formats=kinds)
        [version] = pushed.glob("[0-9]*")
        pushed_folder = version / "formats"
        names = sorted(os.listdir(pushed_folder)) if pushed_folder.exists() else None
        assert names == (expected and sorted(expected))
    for name in ("int8.tflite", "golden/0.png"):
        assert (pushed_folder / name).read_bytes() == name.encode()


def test_the_model_in_use_is_not_pushed_again_but_gets_the_new_card(
    model: Path, tmp_path: Path
) -> None:
    models = tmp_path / "pushed"
    # What a kill after the copy leaves: the version is whole, but nobody knows of it, nor its card.
    shutil.copytree(model / "Format-Serving", tmp_path / "another disk")
    models.mkdir()
    (models / "17").symlink_to(tmp_path / "another disk")
    for text in (CARD, "# The report says more now.\n"):
        card = make_card(str(tmp_path / "card"), text)
        pushed = push(model, str(models), tmp_path / "archive", card=card)
        assert sorted(os.listdir(models)) == [".lock", "17"]
        assert sorted(os.listdir(models / "17")) == PUSHED
        assert (models / "17" / PUSHED_CARD).read_text(encoding="utf-8") == text
        assert pushed.get_int_custom_property("pushed") == 1
        assert pushed.get_string_custom_property("pushed_version") == "17"
        assert pushed.get_string_custom_property("pushed_destination") == str(models / "17")
        assert (tmp_path / "archive" / "saved_model.pb").exists()


def test_the_card_makes_no_other_model_and_one_that_was_in_use_before_is_pushed_anew(
    tmp_path: Path,
) -> None:
    models, card = str(tmp_path / "pushed"), make_card(str(tmp_path / "card"))
    versions: list[str] = []
    for name in ("old", "new", "old"):
        folder = tmp_path / name / "Format-Serving"
        if not folder.exists():
            saved_model(folder, weights=name.encode())
        pushed = push(tmp_path / name, models, tmp_path / f"archive-{len(versions)}", card=card)
        versions.append(pushed.get_string_custom_property("pushed_destination"))
        before = versions[-2] if len(versions) > 1 else ""
        assert find_baseline(models, str(folder)) == before
    assert len({*versions}) == 3


WEIGHTS = "variables/variables.data-00000-of-00001"
DAMAGES: dict[str, tuple[str, bytes | None, str]] = {
    "truncated": (WEIGHTS, b"model", f"{WEIGHTS} has 5 bytes instead of 10"),
    "overwritten": (WEIGHTS, b"-" * 10, f"the content of {WEIGHTS} has changed"),
    "lost weights": (WEIGHTS, None, f"{WEIGHTS} is missing"),
    "a damaged record": (FILES, b"{", f"{FILES} is damaged"),
    "no record of its own": (FILES, None, ""),
    "lost weights, by hand": (
        WEIGHTS,
        None,
        "the weights that belong to variables/variables.index are missing",
    ),
    "another model, by hand": ("saved_model.pb", b"graph", "it has no signature serving_examples"),
}


@pytest.mark.parametrize(
    "kind", [*DAMAGES, pytest.param("truncated in a bucket", marks=pytest.mark.slow)]
)
def test_a_damaged_model_in_use_is_left_out_and_pushed_again(
    store: str, tmp_path: Path, kind: str
) -> None:
    name, content, damage = DAMAGES[kind.removesuffix(" in a bucket")]
    for folder in ("model", "new"):
        saved_model(tmp_path / folder / "Format-Serving", weights=folder.encode())
    models = str(tmp_path / "pushed") if kind in DAMAGES else f"{store}/damaged"
    pushed = push(tmp_path / "model", models, tmp_path / "archive")
    first = pushed.get_string_custom_property("pushed_destination")
    assert find_unusable(models) == {}
    remove_file(f"{first}/{name}")
    if content is not None:
        replace_file(f"{first}/{name}", content)
    if "by hand" in kind:
        replace_file(f"{first}/{FILES}", b"{}")
    new = str(tmp_path / "new" / "Format-Serving")
    assert find_unusable(models) == ({first: damage} if damage else {})
    assert find_baseline(models, new) == ("" if damage else first)
    again = push(tmp_path / "model", models, tmp_path / "archive-2")
    second = again.get_string_custom_property("pushed_destination")
    assert (second == first, find_unusable(models)) == (not damage, {})
    assert find_baseline(models, new) == second


def test_versions_that_are_no_trained_models(tmp_path: Path) -> None:
    models = tmp_path / "pushed"
    models.mkdir()
    (models / "99999999999").symlink_to(tmp_path / "unmounted")
    by_hand = models / "7"
    by_hand.mkdir()
    (by_hand / "saved_model.pb").write_bytes(b"a graph with its weights")
    unusable = find_unusable(str(models))
    assert unusable[f"{models}/99999999999"] == "the folder is missing"
    assert "variables.index" in unusable[f"{models}/7"]
    saved_model(tmp_path / "model" / "Format-Serving", weights=b"")
    pushed = push(tmp_path / "model", str(models), tmp_path / "archive")
    assert int(pushed.get_string_custom_property("pushed_version")) > 99999999999


class Killed(BaseException):
    """Ends a push without a word, as a kill does."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Let the file operation of this number, from 0 on, and those after it, not happen any more."""
    operations = itertools.count()

    def count(operation: Any) -> Any:
        def perform(*args: Any, **options: Any) -> Any:
            if next(operations) >= moment:
                raise Killed
            return operation(*args, **options)

        return perform

    for module in (versions, executor):
        for name in ("copy_file", "copy_folder", "replace_file"):
            monkeypatch.setattr(module, name, count(getattr(module, name)))
    monkeypatch.setattr(os, "rename", count(os.rename))
    marks = count(Executor._MarkPushed)
    monkeypatch.setattr(Executor, "_MarkPushed", marks)


def push_until_done(model: Path, destination: str, folder: Path, monkeypatch: Any) -> list[str]:
    """Push again and again, killed one operation later each time; return the last version."""
    card = make_card(str(folder / "card"))
    for moment in range(50):
        with monkeypatch.context() as patches, contextlib.suppress(Killed):
            kill_at(patches, moment)
            pushed = push(model, destination, folder / f"archive-{moment}", card=card)
            assert moment >= 4, "killed less often than a push has operations"
            return [pushed.get_string_custom_property("pushed_version")]
        for name in os.listdir(destination) if os.path.isdir(destination) else []:
            whole = os.path.exists(os.path.join(destination, name, "saved_model.pb"))
            assert whole or not name.isdigit()
    pytest.fail("the push never ended")


@pytest.mark.slow
@pytest.mark.parametrize("remote", [False, True])
def test_a_push_that_is_killed_at_any_moment_makes_one_version(
    store: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    models = f"{store}/killed" if remote else str(tmp_path / "pushed")
    # A kill must not be outlived by a version of its own, not even where a second has passed.
    seconds = itertools.count(1_700_000_000)
    monkeypatch.setattr("time.time", lambda: next(seconds))
    [version] = push_until_done(model, models, tmp_path, monkeypatch)
    files = {file.path for file in find_files(models)} - {".lock"}
    assert {path.split("/")[0] for path in files} == {version}
    assert sorted({path.split("/")[1] for path in files}) == PUSHED


def test_a_later_version_has_a_larger_number_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    others = ("²", "9" * 30)
    for name in others:
        saved_model(tmp_path / "pushed" / name, weights=b"of somebody else's")
    for name in ("one", "two", "three"):
        saved_model(tmp_path / name / "Format-Serving", weights=name.encode())
        pushed = push(tmp_path / name, str(tmp_path / "pushed"), tmp_path / "archive")
        last = pushed.get_string_custom_property("pushed_destination")
        assert (Path(last) / "variables" / "variables.index").read_text() == name
    assert set(os.listdir(tmp_path / "pushed")) == {".lock", "1000", "1001", "1002", *others}


def test_pushes_at_the_same_time_make_one_version(tmp_path: Path) -> None:
    model = tmp_path / "model"
    saved_model(model / "Format-Serving", weights=b"w" * 100_000)
    with ThreadPoolExecutor(8) as pool:
        pushes = pool.map(
            lambda n: push(model, str(tmp_path / "pushed"), tmp_path / f"archive-{n}"), range(8)
        )
        versions = {artifact.get_string_custom_property("pushed_version") for artifact in pushes}
    assert {".lock", *versions} == set(os.listdir(tmp_path / "pushed"))
    assert len(versions) == 1
    # The folder above may be another file system, or not writable.
    assert not list(tmp_path.glob("*.lock"))


def test_neither_a_model_that_is_not_blessed_nor_one_without_its_card_is_pushed(
    model: Path, tmp_path: Path
) -> None:
    models, card = tmp_path / "pushed", make_card(str(tmp_path / "card"))
    pushed = push(model, str(models), tmp_path / "archive", card=card, blessed=False)
    assert pushed.get_int_custom_property("pushed") == 0
    card.uri = str(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        push(model, str(models), tmp_path / "archive", card=card)
    assert not models.exists()
