"""The command of a step, run in this process: its output and its error messages."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tfx import types
from tfx.dsl.components.base import base_executor

from components.contract.errors import UserError
from components.contract.properties import LookupInput
from pipeline_def.code_digest import code_digest
from pipeline_def.kubeflow.specification import LOOKUPS, Spec
from pipeline_def.kubeflow.step import entrypoint
from pipeline_def.kubeflow.step import executor_io as message
from pipeline_def.kubeflow.step_interface import StepInterface
from tests.kubeflow.conftest import command, executor_input
from tests.kubeflow.conftest import interface as interface_of
from tests.repository import ROOT

MODEL = "tfx.types.standard_artifacts.Model"
METRICS = "components.contract.tfx_classes.Metrics"


class Copier(base_executor.BaseExecutor):
    """Writes its input into the metadata of its output."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        [model], [[copy]] = input_dict["model"], output_dict.values()
        copy.set_int_custom_property("found", model.get_int_custom_property("found"))
        copy.set_string_custom_property("kinds", json.dumps(describe(exec_properties)))
        Path(copy.uri).write_text(Path(model.uri).read_text())


class Failing(base_executor.BaseExecutor):
    """Reports a user's mistake, or has a bug."""

    def Do(self, _: Any, __: Any, exec_properties: dict[str, Any]) -> None:
        if exec_properties["bug"]:
            raise ZeroDivisionError("of a bug\nand more")
        raise UserError("There are no images.")


def find(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the lookup was given."""
    return {"span": 3, "seen": describe(properties), "model": Path(inputs["model"].uri).read_text()}


def describe(properties: Mapping[str, Any]) -> dict[str, str]:
    return {key: f"{type(value).__name__} {value}" for key, value in properties.items()}


def arguments(
    tmp_path: Path, interface: StepInterface, *, step: str = "Copier", **parameters: Any
) -> list[str]:
    (tmp_path / "model").write_text("weights")
    artifact = {"name": "7", "type": {"instanceSchema": ""}, "metadata": {"found": 1.0, "x": "y"}}
    model = {**artifact, "uri": f"{tmp_path}/model"}
    copy = {"uri": f"{tmp_path}/copy", "type": {"schemaTitle": "system.Metrics"}}
    file = tmp_path / "new/output_metadata.json"
    return command(
        step, interface, executor_input(file, {"model": model}, {"copy": copy}, **parameters)
    )


def interface(name: str, **changes: Any) -> StepInterface:
    """The interface of a step whose executor is a class of this module."""
    fields = {"inputs": {"model": MODEL}, "outputs": {"copy": METRICS}}
    return StepInterface(executor=f"{__name__}.{name}", **(fields | changes))


def output(tmp_path: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((tmp_path / "new/output_metadata.json").read_text())
    return written


@pytest.mark.parametrize("release", ["2.5", "2.17"])
def test_executor_input_and_output(tmp_path: Path, release: str) -> None:
    """KFP 2.17 writes doubles as Go does, names outputs, and adds the log to them."""
    argv = arguments(
        tmp_path,
        interface("Copier", step="Trainer", integers=("count",)),
        count=5.0,
        fraction=1.0,
        custom_config='{"training": {"epochs": 20}}',
        training_epochs=7.0,
        resolved=json.dumps({"span": 3, "version": None}),
    )
    if release == "2.17":
        given = json.loads(argv[-1].replace("5.0", "5").replace("1.0", "1").replace("7.0", "7"))
        log = {"name": "executor-logs", "uri": f"{tmp_path}/executor-logs-0"}
        given["outputs"]["artifacts"]["copy"]["artifacts"][0]["name"] = "copy"
        given["outputs"]["artifacts"]["executor-logs"] = {"artifacts": [log]}
        argv[-1] = json.dumps(given)
    assert entrypoint.main(argv) == 0
    assert set(output(tmp_path)["artifacts"]) == {"copy"}
    [copy] = output(tmp_path)["artifacts"]["copy"]["artifacts"]
    assert (tmp_path / "copy").read_text() == "weights"
    assert copy["uri"] == f"{tmp_path}/copy"
    kinds = json.loads(copy["metadata"].pop("kinds"))
    assert kinds == {
        "count": "int 5",
        "fraction": "float 1.0",
        "span": "int 3",
        "custom_config": 'str {"training": {"epochs": 7}}',
    }
    assert copy["metadata"] == {"found": 1.0}


def test_a_lookup_writes_a_parameter(tmp_path: Path) -> None:
    finder = StepInterface(lookup=f"{__name__}.find", inputs={"model": MODEL}, integers=("count",))
    argv = arguments(tmp_path, finder, count=5.0, fraction=1.0)
    assert entrypoint.main(argv) == 0
    resolved = json.loads(output(tmp_path)["parameterValues"]["resolved"])
    assert resolved == {
        "span": 3,
        "seen": {"count": "int 5", "fraction": "float 1.0"},
        "model": "weights",
    }
    # Launchers after 2.17 fail without a local copy of each output; this one is never written.
    assert list((tmp_path / "copy").iterdir()) == []


@pytest.mark.parametrize(("digest", "status"), [(None, 0), ("0" * 16, 2)])
def test_an_image_with_other_code_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], digest: str | None, status: int
) -> None:
    here = digest or code_digest("Trainer")
    step = interface("Copier", step="Trainer")
    for given in (step, replace(step, executor="", lookup=f"{__name__}.find")):
        assert entrypoint.main(arguments(tmp_path, given, code_digest=here)) == status
        rejected = "This container image holds other code for Trainer" in capsys.readouterr().err
        assert rejected is (status == 2)


@pytest.mark.parametrize(
    ("given", "bug", "last"),
    [
        (interface("Failing"), "", "error: There are no images."),
        (interface("Failing"), "a bug", "failed: of a bug"),
        (interface("Gone"), "", f"error: This container image has no {__name__}.Gone (module "),
        (interface("Copier", inputs={"schema": MODEL}), "", "error: The step got no artifact 'sch"),
    ],
    ids=["user", "bug", "no executor", "no input"],
)
def test_the_last_log_line_is_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: StepInterface, bug: str, last: str
) -> None:
    assert entrypoint.main(arguments(tmp_path, given, bug=bug)) == (1 if bug else 2)
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"Copier: {last}")
    assert ("Traceback" in "".join(said)) is bool(bug)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{$}}", "--executor_input is not what KFP's launcher gives"),
        (None, "count is 'x': it must be an integer."),
    ],
)
def test_a_message_of_no_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    finder = StepInterface(lookup=f"{__name__}.find", inputs={"model": MODEL}, integers=("count",))
    argv = arguments(tmp_path, finder, count="x")
    assert entrypoint.main([*argv[:-1], text or argv[-1]]) == 2
    assert said in capsys.readouterr().err


def in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> list[str]:
    """Give outputs URIs of a store that the launcher would copy them to."""
    mounts = {f"{tmp_path}/store/": f"{tmp_path}/mount/"}
    monkeypatch.setattr(message, "_MOUNTS", mounts)
    (tmp_path / "mount").mkdir()
    given = json.loads(argv[-1])
    for name in ("copy", "again"):
        uri = f"{tmp_path}/store/{name}"
        given["outputs"]["artifacts"][name] = {"artifacts": [{"uri": uri}]}
    return [*argv[:-1], json.dumps(given)]


def test_steps_in_one_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its own properties, and the artifacts of those before it."""
    first = interface("Copier", step="First", integers=("count",))
    second = interface(
        "Copier", step="Second", outputs={"again": METRICS}, received={"model": "copy"}
    )
    argv = arguments(
        tmp_path, StepInterface(parts=[first, second]), First_count=5.0, Second_count=6.0
    )
    argv = in_a_store(tmp_path, monkeypatch, argv)
    assert entrypoint.main(argv) == 0
    artifacts = output(tmp_path)["artifacts"]
    kinds = {}
    for name in ("copy", "again"):
        [artifact] = artifacts[name]["artifacts"]
        assert artifact["uri"] == f"{tmp_path}/store/{name}"
        assert artifact["metadata"]["found"] == 1
        kinds[name] = json.loads(artifact["metadata"]["kinds"])
        # The launcher uploads what lies there.
        assert (tmp_path / "mount" / name).read_text() == "weights"
    assert kinds == {"copy": {"count": "int 5"}, "again": {"count": "float 6.0"}}


def find_other(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"other": properties["found"]}


def test_lookups_in_one_pod(tmp_path: Path) -> None:
    lookup = f"{__name__}.find_other"
    first = StepInterface(step="First", lookup=lookup)
    second = StepInterface(step="Second", lookup=lookup, received={"found": "First_resolved"})
    argv = arguments(tmp_path, StepInterface(parts=[first, second]), First_found="it")
    assert entrypoint.main(argv) == 0
    assert output(tmp_path)["parameterValues"] == {
        "First_resolved": '{"other": "it"}',
        "Second_resolved": json.dumps({"other": '{"other": "it"}'}),
    }


_IMPORT = """
import importlib, json, sys
from pipeline_def.kubeflow.step import entrypoint
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps([*sys.modules]))
"""


def test_lookups_import_neither_tensorflow_nor_tfx(compiled: list[Spec]) -> None:
    """A pod that works for seconds must start fast."""
    paths = [part.lookup for part in interface_of(compiled[0], LOOKUPS).parts]
    more = ("components.predict.files.look_up", "components.trainer.networks.weights_file.look_up")
    assert all(paths)
    modules = {path.rpartition(".")[0] for path in (*paths, *more)}
    command = [sys.executable, "-W", "ignore", "-c", _IMPORT, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {*json.loads(done.stdout.splitlines()[-1])}
    assert imported >= modules
    heavy = {"tensorflow", "tfx", "apache_beam", "ml_metadata", "pandas", "kfp", "numpy"}
    assert imported & heavy == set()
