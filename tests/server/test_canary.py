"""A new version that is tried on a fraction of the requests, over real connections."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.contract.errors import StorageError
from pipeline_def.local.server import versions as module
from pipeline_def.local.server.canary import Canary, CanaryOptions
from pipeline_def.local.server.rest import RequestError
from pipeline_def.local.server.versions import Versions
from tests.server.fake_model import FakeModel, png
from tests.server.serving import ask, instances, running

FEEDBACK = "/v1/models/images:feedback"
INFER = "/v2/models/images/infer"


class Other(FakeModel):
    """Answers "other" to one of ten colours."""

    def _answer(self, signature: str, file: bytes) -> dict[str, Any]:
        answer = super()._answer(signature, file)
        is_other = self.version != "1" and answer["probabilities"][0] * 255 % 10 < 0.5
        return answer | ({"label": b"other"} if is_other else {})


class Broken(FakeModel):
    """Fails on every request."""

    def predict(self, signature: str, files: Sequence[bytes | Path]) -> list[dict[str, Any]]:
        raise ValueError("no memory left")


class Pushed:
    """A folder of versions, and what serves them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.models = folder, {"1": FakeModel("1")}
        self.options = CanaryOptions(0.5, 0.02, str(folder / "canary.json"))
        self.push(self.models["1"])

    def push(self, model: FakeModel) -> None:
        self.models[model.version] = model
        (self.folder / model.version).mkdir()
        (self.folder / model.version / "saved_model.pb").touch()

    def open(self) -> Versions:
        load = lambda path: self.models[Path(path).name]  # noqa: E731
        return Versions(str(self.folder), load, canary=self.options)


@pytest.fixture
def pushed(tmp_path: Path) -> Pushed:
    return Pushed(tmp_path)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.WARNING, logger=module.__name__)
    return lambda: " ".join(record.message for record in caplog.records)


def send(port: int, ids: Sequence[str]) -> dict[str, str]:
    """Send a request of four images with each id; return which version answered."""
    found = {}
    for number, name in enumerate(ids):
        files = [png((4 * number + offset) % 250) for offset in range(4)]
        body = {"inputs": [_tensor(files)]}
        headers: dict[str, Any] = {"X-Request-ID": name}
        status, answer = ask(port, INFER, body, **headers)
        assert status == 200
        found[name] = answer["model_version"]
    return found


def _tensor(files: Sequence[bytes]) -> dict[str, Any]:
    data = [one["b64"] for one in instances(*files)["instances"]]
    return {"name": "image_bytes", "datatype": "BYTES", "shape": [len(files)], "data": data}


@pytest.fixture
def served(pushed: Pushed) -> Iterator[tuple[int, Pushed, Versions]]:
    versions = pushed.open()
    with running(versions) as port:
        yield port, pushed, versions


def names(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


@pytest.mark.slow
def test_a_version_with_equal_answers_takes_over_after_some_hundred(
    served: tuple[int, Pushed, Versions], said: Callable[[], str]
) -> None:
    port, pushed, versions = served
    pushed.push(FakeModel("2"))
    asyncio.run(versions.update())
    first = send(port, names(40))
    assert {"1", "2"} == set(first.values())
    assert send(port, names(40)) == first
    status = ask(port, "/v1/models/images")[1]["model_version_status"]
    assert [(one["version"], one["state"]) for one in status] == [
        ("2", "AVAILABLE"),
        ("1", "AVAILABLE"),
    ]
    assert versions.current.version == "1"
    send(port, names(100))
    assert (versions.current.version, versions.canary) == ("2", None)
    assert "Now serving version 2: of 2" in said()
    assert set(send(port, names(4)).values()) == {"2"}
    asyncio.run(versions.update())
    assert pushed.open().current.version == "2"


@pytest.mark.parametrize(
    ("label", "verdict"),
    [
        pytest.param(None, None, id="nobody knows who is right"),
        pytest.param("other", "2", id="the new one is right"),
        pytest.param("old", "1", id="the new one is wrong"),
    ],
)
@pytest.mark.slow
def test_feedback_decides_where_versions_differ(
    label: str | None, verdict: str | None, served: tuple[int, Pushed, Versions]
) -> None:
    port, pushed, versions = served
    pushed.push(Other("2"))
    asyncio.run(versions.update())
    for number in range(250):
        [version] = send(port, [f"r{number}"]).values()
        labels = ["other" if label == "other" and red == 0 else f"{red} 0 0" for red in range(4)]
        if label and version == "2":
            answer = ask(port, FEEDBACK, {"id": f"r{number}", "labels": labels})
            assert answer == (200, {"counted": 1 if versions.canary else 0})
    assert (versions.current.version, versions.canary is None) == (verdict or "1", bool(verdict))
    if verdict == "1":
        asyncio.run(versions.update())
        assert versions.canary is None
        [state, _] = ask(port, "/v1/models/images")[1]["model_version_status"]
        assert "withdrawn: of 100 images" in state["status"]["error_message"]
        again = pushed.open()
        asyncio.run(again.update())
        assert (again.current.version, again.canary) == ("1", None)


def test_a_version_that_fails_costs_no_answer(
    served: tuple[int, Pushed, Versions], said: Callable[[], str]
) -> None:
    port, pushed, versions = served
    pushed.push(Broken("2"))
    asyncio.run(versions.update())
    assert set(send(port, names(10)).values()) == {"1"}
    assert "Version 2 is withdrawn: it fails on request: no memory left." in said()


def test_a_rollback_or_a_vanished_version_ends_the_trial(pushed: Pushed) -> None:
    versions = pushed.open()
    pushed.push(Other("2"))
    asyncio.run(versions.update())
    assert versions.canary
    (pushed.folder / "2").rename(pushed.folder / "away")
    asyncio.run(versions.update())
    assert versions.canary is None
    pushed.push(FakeModel("3"))
    (pushed.folder / "3" / "assets.extra").mkdir()
    note = {"restored": "1", "withdrawn": {}}
    (pushed.folder / "3" / "assets.extra" / "rollback.json").write_text(json.dumps(note))
    asyncio.run(versions.update())
    assert versions.current.version == "3"


def test_a_damaged_or_unwritable_record_is_named(
    pushed: Pushed, said: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: str, content: bytes) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(module, "replace_file", fail)
    asyncio.run(pushed.open().update())
    assert "The next start will not know which version is in use: The disk is full." in said()
    Path(pushed.options.file).write_text("{")
    with pytest.raises(StorageError, match=r"canary\.json is damaged: remove it"):
        pushed.open()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"labels": ["a"]}, "Expecting 'id'"),
        ({"id": "r", "labels": "a"}, "Expecting 'id'"),
        ({"id": "r", "labels": []}, "Expecting 'id'"),
    ],
)
def test_feedback_that_cannot_be_read_is_refused(
    served: tuple[int, Pushed, Versions], body: Any, says: str
) -> None:
    status, answer = ask(served[0], FEEDBACK, body)
    assert (status, says in answer["error"]) == (400, True)


def test_labels_must_be_those_of_the_request_and_of_a_version() -> None:
    old, new = FakeModel("1"), FakeModel("2")
    old.labels = new.labels = ("a", "b")
    canary = Canary(new, old, CanaryOptions(1, 0.02, ""))
    canary.compare("r", [{"label": b"a"}, {"label": b"a"}], [{"label": b"b"}, {"label": b"a"}])
    with pytest.raises(RequestError, match="had 2 images, not 1"):
        canary.learn("r", ["a"])
    with pytest.raises(RequestError, match="No version has the label 'x'"):
        canary.learn("r", ["a", "x"])
    assert (canary.learn("r", ["a", "b"]), canary.learn("r", ["a", "b"])) == (1, 0)
    assert (canary.open, canary.better, canary.worse) == (0, 0, 1)


@pytest.mark.parametrize(
    ("images", "better", "worse", "open_", "verdict"),
    [
        pytest.param(99, 0, 0, 0, None, id="too few to look"),
        pytest.param(100, 0, 0, 0, None, id="equal, but 100 images prove no 2 points"),
        pytest.param(200, 0, 0, 0, True, id="equal"),
        pytest.param(400, 0, 0, 20, None, id="20 might all be wrong"),
        pytest.param(400, 30, 0, 20, True, id="better even if they are"),
        pytest.param(400, 0, 30, 20, None, id="20 might all be right"),
        pytest.param(400, 0, 30, 0, False, id="worse"),
        pytest.param(400, 6, 9, 0, None, id="undecided"),
    ],
)
def test_the_worst_is_assumed_of_answers_that_differ(
    images: int, better: int, worse: int, open_: int, verdict: bool | None
) -> None:
    canary = Canary(FakeModel("2"), FakeModel("1"), CanaryOptions(1, 0.02, ""))
    canary.images, canary.better, canary.worse, canary.open = images, better, worse, open_
    assert canary.decide() is verdict
    assert canary.decide() is None, "looks again without further images"
