"""Translation between KFP's launcher and TFX's entrypoint, both ways."""

import json
from dataclasses import replace
from typing import Any

import pytest

from components.contract.errors import UserError
from pipeline_def.kubeflow.step.executor_io import (
    finish_output,
    local_path,
    prepare_input,
    remote_uri,
    run_folder,
    storage_of,
)
from pipeline_def.kubeflow.step_interface import StepInterface
from tests.kubeflow.conftest import executor_input

RUN = "minio://mlpipeline/v2/artifacts/images/0e5b7c1a-7a3d-4c55-9f3e-1d2c3b4a5f60"
EPOCHS = '{"training": {"epochs": 2}}'
SALT = "11111111-2222-3333-4444-555555555555"


def given(**parameters: Any) -> dict[str, Any]:
    """An executor input in the layout of KFP 2.5: blank types, doubles, extra outputs."""
    blank, folder = {"instanceSchema": ""}, f"{RUN}/Trainer/{SALT}"
    examples = {
        "name": "7",
        "uri": f"{RUN}/ImageExampleGen/{SALT}/examples",
        "type": blank,
        "metadata": {"span": 3.0, "display_name": "examples"},
    }
    logs = {"uri": f"{folder}/executor-logs", "type": {"schemaTitle": "system.Artifact"}}
    outputs = {"model": {"uri": f"{folder}/model", "type": blank}, "executor-logs": logs}
    return executor_input(
        "/tmp/output_metadata.json", {"examples": examples}, outputs, **parameters
    )


TRAINER = StepInterface(
    inputs={"examples": "tfx.types.standard_artifacts.Examples"},
    outputs={"model": "tfx.types.standard_artifacts.Model"},
    step="Trainer",
    pipeline="images",
)
INGEST = replace(TRAINER, step="ImageExampleGen")


def properties(interface: StepInterface = TRAINER, **parameters: Any) -> dict[str, Any]:
    prepared = prepare_input(given(**parameters), interface)
    values: dict[str, Any] = prepared["inputs"]["parameterValues"]
    return values


def test_direct_steps_keep_remote_uris() -> None:
    message = given(storage="", training_epochs=1.0, custom_config=EPOCHS)
    before = json.dumps(message)
    prepared = prepare_input(message, replace(TRAINER, direct=True))
    # The launcher's own outputs are dropped.
    [[model]] = [listed["artifacts"] for listed in prepared["outputs"]["artifacts"].values()]
    assert model["uri"] == model["name"] == f"{RUN}/Trainer/{SALT}/model"
    assert json.dumps(message) == before


def test_run_parameters_replace_compiled_values() -> None:
    config = json.dumps({"training": {"epochs": 20, "seed": 1}})
    [config_text] = properties(custom_config=config, training_epochs=3.0).values()
    assert json.loads(config_text) == {"training": {"epochs": 3, "seed": 1}}
    assert '"epochs": 3,' in config_text
    # The launcher writes the double 1.0 as 1.
    rate = properties(
        custom_config='{"training": {"learning_rate": 0.5}}', training_learning_rate=1
    )
    assert rate["custom_config"] == '{"training": {"learning_rate": 1.0}}'
    assert properties(INGEST, data="gs://b/i") == {"input_base": "gs://b/i"}


def test_a_search_leaves_alone_what_the_run_sets() -> None:
    training = {"epochs": 20, "learning_rate": 0.5, "seed": 1, "fixed": ["model.width"]}
    values = {"training_epochs": 5.0, "training_learning_rate": 0.5, "training_seed": 2.0}
    for step, fixed in (
        ("Tuner", ["model.width", "training.epochs"]),
        ("Trainer", ["model.width"]),
    ):
        compiled = json.dumps({"training": training})
        [text] = properties(replace(TRAINER, step=step), custom_config=compiled, **values).values()
        assert json.loads(text)["training"] == {**training, "epochs": 5, "seed": 2, "fixed": fixed}


def test_storage_folder() -> None:
    for storage, expected in (
        ("gs://models/prod/", "gs://models/prod/pushed"),
        ("/mnt/models", "/mnt/models/pushed"),
        ("", "minio://mlpipeline/v2/artifacts/images/pushed"),
    ):
        values = properties(pushed_models="{storage}/pushed", storage=storage)
        assert values == {"pushed_models": expected}
    elsewhere = json.dumps(given(pushed_models="{storage}/pushed", storage=""))
    with pytest.raises(UserError, match="set the parameter storage of the run"):
        prepare_input(json.loads(elsewhere.replace(RUN, "gs://bucket/elsewhere")), TRAINER)


@pytest.mark.parametrize(
    ("uri", "folder", "run"),
    [
        (f"{RUN}/Trainer/{SALT}/model", "minio://mlpipeline/v2/artifacts/images", RUN),
        # Vertex AI keeps logs itself.
        ("gs://b/root/123456/images-20261121190000/Trainer_-88/model", "gs://b/root/images", None),
        ("gs://b/images/Trainer/model", None, None),
        (f"gs://b/other/{SALT}/Trainer/model", None, None),
    ],
)
def test_the_folders_of_pipeline_and_run_come_from_outputs(
    uri: str, folder: str | None, run: str | None
) -> None:
    """Inputs of a cached step are another run's."""
    other = {"examples": {"uri": f"gs://b/images/{SALT}/ImageExampleGen/1"}}
    given = executor_input("", other, {"model": {"uri": uri}})
    assert (storage_of(given, "images"), run_folder(given, "images")) == (folder, run)


def test_the_span_of_a_run() -> None:
    """The newest, one for this run, and as compiled."""
    for compiled, run, expected in ((None, -1.0, None), (None, 20260.0, 20260), (7, 7.0, 7)):
        [config] = properties(INGEST, config=json.dumps({"span": compiled}), span=run).values()
        assert repr(json.loads(config)["span"]) == repr(expected)


def test_values_that_do_not_fit_are_errors() -> None:
    with pytest.raises(UserError, match="no place in the properties of Trainer"):
        properties(training_epochs=3.0)
    with pytest.raises(UserError, match="OverflowError"):
        properties(training_epochs=float("inf"), custom_config=EPOCHS)


def test_local_paths_and_remote_uris() -> None:
    for uri, path in (("gs://b/x", "/gcs/b/x"), ("minio://b/x", "/minio/b/x"), ("s3://b", "/s3/b")):
        assert (local_path(uri), remote_uri(path)) == (path, uri)
    with pytest.raises(UserError, match="oci://image is not on gs://, s3:// or minio://"):
        local_path("oci://image")


@pytest.mark.parametrize(("direct", "uri"), [(False, "minio://b/x"), (True, "/minio/b/x")])
def test_output_has_remote_uris_and_no_null(direct: bool, uri: str) -> None:
    metadata = {"a": None, "b": 1.0, "c": float("nan"), "d": ""}
    written = {"name": "7", "uri": "/minio/b/x", "metadata": metadata}
    output = {"artifacts": {"x": {"artifacts": [written]}}}
    [artifact] = finish_output(output, direct=direct)["artifacts"]["x"]["artifacts"]
    assert artifact == {"name": "7", "uri": uri, "metadata": {"b": 1.0, "d": ""}}
