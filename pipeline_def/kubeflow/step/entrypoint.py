"""The command of every step on Kubeflow: `python -m pipeline_def.kubeflow.step.entrypoint`.

TFX's own entrypoint is written for Vertex AI. This one translates the input of KFP's launcher for
executors, runs them, and translates their output back.
"""

import argparse
import copy
import dataclasses
import importlib.util
import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from components.contract.artifact_files import uses_other_machines
from components.contract.configuration import from_json
from components.contract.errors import ConfigurationError, ServiceError, StorageError, UserError
from components.contract.properties import LookupInput
from components.evaluation.baseline_lookup import read_labels, require_same_task
from components.host.startup import import_libraries
from components.ingest.lookup import LISTING_PROPERTY
from components.ingest.source.listing import read_listing
from components.storage.folder import write_json
from components.storage.saved_model import whole_versions
from components.trainer.loop.cluster import Cluster
from pipeline_def.code_digest import code_digest
from pipeline_def.kubeflow.step.executor_io import (
    finish_output,
    make_output_folders,
    prepare_input,
    read_executor_input,
    to_integer,
)
from pipeline_def.kubeflow.step.kept_log import run_keeping_log
from pipeline_def.kubeflow.step.store_endpoint import choose_endpoint
from pipeline_def.kubeflow.step_interface import (
    EXTRAS,
    FAILED,
    RESOLVED_PARAMETER,
    SETTINGS_VARIABLE,
    UNAVAILABLE,
    PodSettings,
    StepInterface,
    describe_build,
)
from pipeline_def.steps import BASELINE_FINDER, EXAMPLE_GEN, TRAINER


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
    _check_extras(settings.extras)
    given = read_executor_input(arguments.executor_input)
    choose_endpoint(given)
    earlier: dict[str, dict[str, Any]] = {"artifacts": {}, "parameterValues": {}}
    for part in interface.parts:
        print(f"Running {part.step}.", flush=True)
        output = _run_part(part, _part_input(part, given, earlier), settings)
        earlier["artifacts"] |= output.get("artifacts", {})
        values = output.get("parameterValues", {})
        earlier["parameterValues"] |= {part.shared(name): value for name, value in values.items()}
    output = earlier if interface.parts else _run_part(interface, given, settings)
    cluster = Cluster.from_environment() if arguments.step == TRAINER.id else None
    # Only the chief writes the output.
    if not cluster or cluster.is_chief:
        write_json(given["outputs"]["outputFile"], output)
    make_output_folders(given)


def _part_input(
    part: StepInterface, given: Mapping[str, Any], earlier: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the executor input of a part, as it would be in a pod of its own.

    `earlier` is the executor output, with remote URIs, of the parts that have run.
    """
    part_input = copy.deepcopy(dict(given))
    inputs, outputs = part_input["inputs"], part_input["outputs"]
    prefix = part.shared("")
    inputs["parameterValues"] = {
        name.removeprefix(prefix): value
        for name, value in inputs["parameterValues"].items()
        if name.startswith(prefix)
    }
    for name, output in part.received.items():
        kind = "artifacts" if output in earlier["artifacts"] else "parameterValues"
        inputs[kind][name] = copy.deepcopy(earlier[kind][output])
    for side, names in ((inputs, part.inputs), (outputs, part.outputs)):
        # A lookup has no outputs but the place that tells it the run's folder.
        if names or not part.lookup:
            side["artifacts"] = {n: a for n, a in side["artifacts"].items() if n in names}
    return part_input


def read_settings() -> PodSettings:
    """Return what the pod is told in its environment."""
    return from_json(PodSettings, os.environ.get(SETTINGS_VARIABLE, "{}"))


def _check_extras(extras: Sequence[str]) -> None:
    for module in itertools.chain.from_iterable(EXTRAS[extra] for extra in extras):
        if importlib.util.find_spec(module) is None:
            raise ConfigurationError(
                f"This container image has no package {module.replace('_', '-')}: build it with "
                f"{describe_build(extras)}."
            )


def _run_part(
    interface: StepInterface, given: dict[str, Any], settings: PodSettings
) -> dict[str, Any]:
    """Run an executor or a lookup; return its output as the launcher takes it."""
    # A part reads what an earlier one wrote in the pod, so all of them use remote URIs, or none.
    direct = interface.direct or uses_other_machines(settings.beam_args)
    interface = dataclasses.replace(interface, direct=direct)
    prepared = prepare_input(given, interface)
    _check_code(interface, prepared)
    if interface.lookup:
        if interface.step == BASELINE_FINDER.id and not settings.new_task:
            _check_task(prepared["inputs"]["parameterValues"])
        return {"parameterValues": {RESOLVED_PARAMETER: json.dumps(_look_up(prepared, interface))}}
    import_libraries()
    if interface.workers > 1 and settings.workers:
        from pipeline_def.kubeflow.step.worker_step import run_workers

        return run_workers(given, interface, settings.workers)
    output = _run_executor(prepared, interface, list(settings.beam_args))
    return finish_output(output, direct=interface.direct)


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


def _check_code(interface: StepInterface, prepared: Mapping[str, Any]) -> None:
    """Reject an image with other code, whose result would be cached as that of the compiled."""
    step, values = interface.step, prepared["inputs"]["parameterValues"]
    # TFX's own components have the property too, and may leave it null.
    choices = json.loads(values.get("custom_config") or "null") or {}
    named = (("model", "build_fn"), ("augmentation", "fn"))
    functions = [(choices.get(section) or {}).get(field) for section, field in named]
    if interface.lookup and any(functions):
        # Only the image of the training needs them.
        return
    compiled = values.get("code_digest")
    if compiled and compiled != code_digest(step, *functions):
        raise ConfigurationError(
            f"This container image holds other code for {step} than the pipeline was compiled "
            "from: build the image and compile the pipeline from the same commit, both with Python "
            "3.11 or both with a newer one, as the versions of TFX and TensorFlow depend on it."
        )


def _check_task(properties: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` if the images are about other labels than the current model."""
    found = json.loads(properties[f"{EXAMPLE_GEN.id}_{RESOLVED_PARAMETER}"])
    if current := next(whole_versions(properties["pushed_models"]), None):
        labels = read_listing(found[LISTING_PROPERTY]).labels()
        others = "compile with another --name, or kubeflow.storage if that is set"
        require_same_task(labels, read_labels(current), current, others=others)


def _run_executor(
    prepared: Mapping[str, Any], interface: StepInterface, beam_args: list[str]
) -> dict[str, Any]:
    """Run the executor, after checking that the image has what it imports; return its output."""
    for path in (*interface.inputs.values(), *interface.outputs.values()):
        _import(path)
    executor = _import(interface.executor)
    from google.protobuf.json_format import MessageToDict, ParseDict
    from kfp.pipeline_spec.pipeline_spec_pb2 import ExecutorInput
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as messages

    given = ParseDict(prepared, ExecutorInput(), ignore_unknown_fields=True)
    names: dict[int, str] = {}
    inputs, outputs = (
        messages.parse_raw_artifact_dict(side.artifacts, names)
        for side in (given.inputs, given.outputs)
    )
    folder = os.path.dirname(given.outputs.output_file)
    context: dict[str, Any] = {"tmp_dir": f"{folder}/.temp", "unique_id": os.path.basename(folder)}
    if issubclass(executor, BaseBeamExecutor):
        context["beam_pipeline_args"] = beam_args
    executor(executor.Context(**context)).Do(inputs, outputs, _list_properties(prepared, interface))
    translated = messages.translate_executor_output(outputs, names)
    return {"artifacts": {name: MessageToDict(listed) for name, listed in translated.items()}}


def _list_properties(prepared: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Return the execution properties; the launcher's numbers are doubles."""
    return {
        name: to_integer(value, name) if name in interface.integers else value
        for name, value in prepared["inputs"]["parameterValues"].items()
    }


def _look_up(prepared: Mapping[str, Any], interface: StepInterface) -> dict[str, Any]:
    """Call the lookup's function; return the execution properties that it finds."""
    inputs = {}
    for name, listed in prepared["inputs"]["artifacts"].items():
        [artifact] = listed["artifacts"]
        span = artifact.get("metadata", {}).get("span") or 0
        inputs[name] = LookupInput(artifact["uri"], to_integer(span, f"The span of {name}"))
    values: dict[str, Any] = _import(interface.lookup)(
        inputs, _list_properties(prepared, interface)
    )
    print(f"Found: {json.dumps(values)}", flush=True)
    return values


def run_program() -> int:
    """Run the step as a program, which keeps its log."""
    arguments = _parse(None)
    try:
        pipeline = from_json(StepInterface, arguments.interface).pipeline
        given, settings = read_executor_input(arguments.executor_input), read_settings()
    except UserError:
        return main()
    return run_keeping_log(main, arguments.step, pipeline, given, settings)


if __name__ == "__main__":
    sys.exit(run_program())
