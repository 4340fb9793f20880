"""Fuzzes the input of a step on Kubeflow: `uv run -m tests.fuzz.executor_input --seconds 600`.

Replaces values in a valid executor input, or its text: a step refuses it in a sentence, or turns it
into input of TFX's entrypoint.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import atheris

from tests.fuzz.session import check_sentence, fuzz

with atheris.instrument_imports(
    include=["pipeline_def.kubeflow.step", "pipeline_def.kubeflow.executor_input"]
):
    from components.contract.errors import UserError
    from pipeline_def.kubeflow import executor_input
    from pipeline_def.kubeflow.step import entrypoint, executor_io, store_endpoint
    from pipeline_def.kubeflow.step_interface import StepInterface

_INTERFACE = StepInterface(
    inputs={"examples": "tfx.types.standard_artifacts.Examples"},
    outputs={"model": "tfx.types.standard_artifacts.Model"},
    step="Trainer",
    integers=("span",),
    recipes={"cifar": {"training.epochs": 30}},
    pipeline="images",
)
_LOOKUP = StepInterface(
    step="ImageExampleGen",
    lookup="tests.fuzz.executor_input.find",
    inputs=_INTERFACE.inputs,
    integers=("version",),
)

_RUN = "minio://mlpipeline/v2/artifacts/images/0e5b7c1a-7a3d-4c55-9f3e-1d2c3b4a5f60/Trainer/1"
_SESSION = {"Provider": "minio", "Params": {"endpoint": "minio:9000", "disableSSL": "true"}}
_GIVEN: dict[str, Any] = {
    "inputs": {
        "parameterValues": {
            "custom_config": json.dumps(
                {"training": {"epochs": 2, "recipe": "plain"}, "model": {}}
            ),
            "training_epochs": 3.0,
            "config": json.dumps({"span": None}),
            "span": -1.0,
            "version": 1.0,
            "training_recipe": "cifar",
            "storage": "s3://bucket/models/",
            "folder": "{storage}/pushed",
            "resolved": json.dumps({"span": 4, "version": None}),
            "code_digest": None,
        },
        "artifacts": {
            "examples": {
                "artifacts": [
                    {
                        "name": "7",
                        "uri": f"{_RUN}/examples",
                        "type": {"instanceSchema": ""},
                        "metadata": {"span": 3.0, "store_session_info": json.dumps(_SESSION)},
                    }
                ]
            }
        },
    },
    "outputs": {
        "artifacts": {
            "model": {"artifacts": [{"uri": f"{_RUN}/model", "type": {"schemaTitle": "system.X"}}]}
        },
        "outputFile": "/tmp/kfp_outputs/output_metadata.json",
    },
}
_MOST_REPLACED = 6
_ODD: list[Any] = [None, True, 0, -1, 2.5, 1e308, "", "{", "[]", "null", "x", [], [[]], {}]


def find(inputs: Any, properties: Any) -> dict[str, Any]:
    """Look up nothing."""
    return {"inputs": len(inputs), "span": properties.get("span")}


def make_seeds() -> Iterator[bytes]:
    """Yield texts of executor inputs, and numbers that choose the values to replace."""
    yield b"\0" + json.dumps(_GIVEN).encode()
    yield b'\0{"outputs": {"outputFile": ""}}'
    yield from (b"\1" + random.Random(number).randbytes(48) for number in range(256))


def check(data: bytes) -> None:
    """Run the entrypoint's code before and after the executor."""
    try:
        given = executor_input.read_executor_input(_make_text(data))
        _use(given)
    except UserError as error:
        check_sentence(error)


def _make_text(data: bytes) -> str:
    if not data or data[0] % 2 == 0:
        return data[1:].decode("utf-8", "replace")
    numbers, given = atheris.FuzzedDataProvider(data[1:]), copy.deepcopy(_GIVEN)
    for _ in range(numbers.ConsumeIntInRange(1, _MOST_REPLACED)):
        _replace(given, numbers)
    return json.dumps(given)


def _replace(given: Any, numbers: Any) -> None:
    """Replace a value anywhere in `given` by an odd one, or remove it."""
    place = given
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = numbers.PickValueInList(keys)
        if not isinstance(place[key], dict | list) or numbers.ConsumeProbability() < 0.2:
            break
        place = place[key]
    if numbers.ConsumeBool():
        place[key] = copy.deepcopy(numbers.PickValueInList(_ODD))
    elif isinstance(place, dict):
        del place[key]
    else:
        place *= 2


def _use(given: dict[str, Any]) -> None:
    store_endpoint.noted_endpoint(given)
    for interface in (_INTERFACE, _LOOKUP):
        prepared = executor_io.prepare_input(given, interface)
        assert json.loads(json.dumps(prepared)) == prepared
        if interface.lookup:
            with contextlib.redirect_stdout(None):
                entrypoint._look_up(prepared, interface)
        else:
            entrypoint._check_code("Trainer", prepared)
    output = {"artifacts": prepared["inputs"]["artifacts"], "parameterValues": {}}
    executor_io.finish_output(output, given, direct=False)
    # The config map of the cluster's own store has the same kind of text.
    values = prepared["inputs"]["parameterValues"]
    store_endpoint.endpoint_of({"providers": str(values), "defaultPipelineRoot": str(given)})


if __name__ == "__main__":
    fuzz(check, make_seeds(), words=('\\"uri\\":', '\\"artifacts\\":', "{storage}", "minio://"))
