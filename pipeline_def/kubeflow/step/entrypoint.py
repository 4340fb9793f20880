"""The command of every step on Kubeflow: `python -m pipeline_def.kubeflow.step.entrypoint`.

TFX's own entrypoint is written for Vertex AI. This one translates the input of KFP's launcher for
it, runs it, and translates its output back.
"""

import argparse
import dataclasses
import importlib
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from components.contract.artifact_files import uses_other_machines
from components.contract.configuration import from_json
from components.contract.errors import ConfigurationError, ServiceError, StorageError, UserError
from components.contract.properties import LookupInput
from components.host.startup import import_libraries, stub_evaluator_module
from components.storage.folder import read_bytes, write_json
from components.trainer.loop.cluster import Cluster
from pipeline_def.code_digest import code_digest
from pipeline_def.kubeflow.executor_input import read_executor_input
from pipeline_def.kubeflow.step.executor_io import (
    SharedPod,
    finish_output,
    make_output_folders,
    prepare_input,
    to_integer,
)
from pipeline_def.kubeflow.step.kept_log import run_keeping_log
from pipeline_def.kubeflow.step.store_endpoint import choose_endpoint
from pipeline_def.kubeflow.step_interface import (
    FAILED,
    RESOLVED_PARAMETER,
    SETTINGS_VARIABLE,
    UNAVAILABLE,
    PodSettings,
    StepInterface,
)
from pipeline_def.steps import TRAINER


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step; return the exit status: 0, or one of those in `step_interface`."""
    arguments = _parse(argv)
    # What Google's libraries say about the Python version is nothing a user can act on.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    try:
        run_step(arguments)
    except UserError as error:
        print(f"{arguments.step}: error: {error}", file=sys.stderr, flush=True)
        may_pass = isinstance(error, StorageError | ServiceError)
        return UNAVAILABLE if may_pass else error.exit_status
    except Exception as error:
        traceback.print_exc()
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        print(f"{arguments.step}: failed: {reason}", file=sys.stderr, flush=True)
        return FAILED
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="entrypoint",
        description="Runs one step of the pipeline with the arguments that kfp_runner.py compiled.",
        allow_abbrev=False,
    )
    parser.add_argument("--step", required=True, help="Name of the task.")
    parser.add_argument("--interface", required=True, help="The compiler's facts about it, JSON.")
    parser.add_argument("--executor_input", required=True, help="The launcher's message, JSON.")
    return parser.parse_args(argv)


def run_step(arguments: argparse.Namespace) -> None:
    """Run all steps or lookups of the pod, and write the output that the launcher reads."""
    interface = from_json(StepInterface, arguments.interface)
    settings = read_settings()
    parts = [_told(part, settings) for part in interface.parts]
    interface = dataclasses.replace(_told(interface, settings), parts=parts)
    given = read_executor_input(arguments.executor_input)
    if arguments.step == TRAINER.id:
        given = _with_own_output(given)
    choose_endpoint(given)
    if interface.parts:
        _run_parts(interface, given, settings)
    else:
        _run_part(interface, given, settings)
    make_output_folders(given)


def read_settings() -> PodSettings:
    """Return what the pod is told in its environment."""
    return from_json(PodSettings, os.environ.get(SETTINGS_VARIABLE, "{}"))


def _told(part: StepInterface, settings: PodSettings) -> StepInterface:
    """Return an interface with what only the pod knows.

    A part reads what an earlier one wrote in the pod, so all of them use remote URIs, or none.
    """
    direct = part.direct or uses_other_machines(settings.beam_args)
    options = settings.options.get(part.step, part.options)
    return dataclasses.replace(part, direct=direct, options=options)


def _run_parts(interface: StepInterface, given: dict[str, Any], settings: PodSettings) -> None:
    """Run the steps and lookups that share the pod."""
    shared = SharedPod(given)
    for part in interface.parts:
        print(f"Running {part.step}.", flush=True)
        part_input = shared.input_of(part)
        try:
            _run_part(part, part_input, settings)
        except BaseException:
            shared.keep_outputs()
            raise
        shared.add(part, json.loads(read_bytes(part_input["outputs"]["outputFile"])))
    write_json(given["outputs"]["outputFile"], shared.made)


def _run_part(interface: StepInterface, given: dict[str, Any], settings: PodSettings) -> None:
    """Run an executor or a lookup, and write its output."""
    prepared = prepare_input(given, interface)
    if interface.lookup:
        resolved = {RESOLVED_PARAMETER: json.dumps(_look_up(prepared, interface))}
        write_json(given["outputs"]["outputFile"], {"parameterValues": resolved})
        return
    import_libraries()
    # It imports TFX.
    from components.storage.tfx_filesystem import register_object_stores

    register_object_stores()
    _check_code(interface.step, prepared)
    output_file = given["outputs"]["outputFile"]
    if interface.workers > 1 and settings.workers:
        from pipeline_def.kubeflow.workers.worker_step import run_workers

        write_json(output_file, run_workers(given, interface, settings.workers))
        return
    _run_executor(prepared, interface, list(settings.beam_args))
    output = json.loads(read_bytes(output_file))
    write_json(output_file, finish_output(output, given, direct=interface.direct))


def _with_own_output(executor_input: dict[str, Any]) -> dict[str, Any]:
    """Keep a worker that is not the chief from overwriting the chief's executor output."""
    cluster = Cluster.from_environment()
    if cluster and not cluster.is_chief:
        folder = tempfile.mkdtemp()
        executor_input["outputs"]["outputFile"] = os.path.join(folder, "executor_output.json")
    return executor_input


def _import(path: str) -> Any:
    """Import a class by its dotted path, which an image with other code may lack."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"This container image has no {path} ({error}): build it from the code that the "
            "pipeline was compiled with."
        ) from error


def _check_code(step: str, prepared: Mapping[str, Any]) -> None:
    """Reject an image with other code, whose result would be cached as that of the compiled."""
    values = prepared["inputs"]["parameterValues"]
    # TFX's own components have the property too, and may leave it null.
    choices = json.loads(values.get("custom_config") or "null") or {}
    named = (("model", "build_fn"), ("augmentation", "fn"))
    functions = [(choices.get(section) or {}).get(field) for section, field in named]
    compiled = values.get("code_digest")
    if compiled and compiled != code_digest(step, *functions):
        raise ConfigurationError(
            f"This container image holds other code for {step} than the pipeline was compiled "
            "from: build the image and compile the pipeline from the same commit, both with Python "
            "3.11 or both with a newer one, as the versions of TFX and TensorFlow depend on it."
        )


def _run_executor(
    prepared: Mapping[str, Any], interface: StepInterface, beam_args: list[str]
) -> None:
    """Run TFX's own entrypoint, after checking that the image has what it imports."""
    for path in (interface.executor, *interface.inputs.values(), *interface.outputs.values()):
        _import(path)
    stub_evaluator_module()
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor

    values = prepared["inputs"]["parameterValues"]
    # The launcher's numbers are doubles; the integers among them came from a lookup or the run.
    integers = {*interface.integers, *(name for name, v in values.items() if isinstance(v, int))}
    types = {name: {"parameterType": "NUMBER_INTEGER"} for name in sorted(integers)}
    arguments = argparse.Namespace(
        executor_class_path=interface.executor,
        json_serialized_invocation_args=json.dumps(prepared),
        json_serialized_inputs_spec_args=json.dumps({"parameters": types}),
    )
    kubeflow_v2_run_executor.main((arguments, beam_args))


def _look_up(prepared: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Call the lookup's function; return the execution properties that it finds."""
    inputs = {}
    for name, listed in prepared["inputs"]["artifacts"].items():
        [artifact] = listed["artifacts"]
        span = artifact.get("metadata", {}).get("span") or 0
        inputs[name] = LookupInput(artifact["uri"], to_integer(span, f"The span of {name}"))
    properties = {
        name: to_integer(value, name) if name in interface.integers else value
        for name, value in prepared["inputs"]["parameterValues"].items()
    }
    found: dict[str, Any] = _import(interface.lookup)(inputs, properties)
    print(f"Found: {json.dumps(found)}", flush=True)
    return found


def run_program() -> int:
    """Run the step as a program, which keeps its log."""
    arguments = _parse(None)
    try:
        pipeline = from_json(StepInterface, arguments.interface).pipeline
        given, settings = read_executor_input(arguments.executor_input), read_settings()
    except UserError:
        return main()
    return run_keeping_log(main, arguments.step, pipeline, given, retries=settings.retries)


if __name__ == "__main__":
    sys.exit(run_program())
