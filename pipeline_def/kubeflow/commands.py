"""The commands of `kfp_runner.py`: compile a specification, and handle runs of it."""

import argparse
import dataclasses
import operator
import shlex
from pathlib import Path

from components.contract.artifact_files import on_disk
from components.contract.errors import ConfigurationError, ModelError, StorageError
from components.trainer.config.model import ModelConfig
from components.trainer.config.recipes import resolve
from components.trainer.networks.weights_file import name_network
from pipeline_def.config.command_line import parse
from pipeline_def.config.config import Config
from pipeline_def.config.options import find_ineffective, list_options
from pipeline_def.kubeflow import run_commands
from pipeline_def.kubeflow.compile.platform import needed_extras
from pipeline_def.kubeflow.run_commands import Parser
from pipeline_def.kubeflow.specification import LOOKUPS, ROOT_SCHEMES, Target, pod_of
from pipeline_def.kubeflow.step_interface import describe_build
from pipeline_def.steps import STEPS, STORAGE, TRAINER

_DESCRIPTION = """Run the pipeline of local_runner.py on open-source Kubeflow Pipelines v2 or Vertex
AI. `compile` writes its specification. The other commands are for open-source Kubeflow: `run`
uploads a specification and starts it."""

# Pixels, of photographs: nobody has looked at the images yet.
_ASSUMED_SIDE = 224


def overview(arguments: list[str]) -> int:
    """Print the help, or report an unknown command."""
    parser = Parser(prog="kfp_runner.py", description=_DESCRIPTION)
    commands = parser.add_subparsers(required=True, metavar="|".join(COMMANDS))
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.__doc__)
    parser.parse_args(arguments)
    return 0


def compile_(arguments: list[str]) -> int:
    """Write the specification of the pipeline: the same bytes for the same configuration."""
    parser = Parser(prog="kfp_runner.py compile", description=compile_.__doc__, add_help=False)
    targets = "oss: open-source Kubeflow Pipelines v2; vertex: Vertex AI. Default: oss."
    parser.add_argument("--target", choices=("oss", "vertex"), default="oss", help=targets)
    parser.add_argument("--image", required=True, help="Container image with this repository.")
    text = "Replace a current model of other labels."
    parser.add_argument("--new_task", "--new-task", action="store_true", help=text)
    parser.add_argument(
        "--output",
        default="pipeline.yaml",
        metavar="FILE",
        help="File to write. Default: pipeline.yaml.",
    )
    if any(word.startswith(("-h", "--help")) for word in arguments):
        options, rest = argparse.Namespace(), arguments
    else:
        options, rest = parser.parse_known_args(arguments)
    others = list_options().keys() - {"output"}
    config, _ = parse(rest, prog=parser.prog, usage=parser.format_help(), only=others)
    config, notes = _resolve_for_cluster(config, options.target)

    from pipeline_def.kubeflow.compile.compiler import compile_documents, dump_documents

    documents = compile_documents(
        config, target=options.target, image=options.image, new_task=options.new_task
    )
    try:
        Path(options.output).write_text(dump_documents(documents), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot write {options.output}: {error.strerror}.") from error
    size = config.transform.size
    print(f"The model {config.model.title} takes images of {size} x {size} pixels.")
    print(f"Its initial weights: {config.model.origin}.")
    for note in notes:
        print(f"Note: {note}.")
    if extras := needed_extras(config):
        print(f"The image must be built with {describe_build(extras)}.")
    if (workers := config.kubeflow.workers) > 1:
        print(f"{workers} workers train together in a Job.")
    print(f"Written: {options.output}, for {options.target}")
    command = f"uv run kfp_runner.py run {shlex.quote(options.output)} --endpoint URL"
    vertex = "docs/how-to/kubeflow.md, section Vertex AI"
    print(f"Next: {command if options.target == 'oss' else vertex}")
    return 0


def _resolve_for_cluster(config: Config, target: Target) -> tuple[Config, list[str]]:
    """Check requirements of a cluster, and choose what a local run derives from the images.

    Returns the configuration, and a sentence about each option that changes nothing.
    """
    if config.data is None:
        raise ConfigurationError(
            "--data is missing: a cluster needs a folder of images, such as gs://…"
        )
    if config.tracking.mlflow:
        raise ConfigurationError(
            "--tracking.mlflow is for local runs: docs/how-to/kubeflow.md shows how to log others."
        )
    config.kubeflow.check_names({LOOKUPS, *map(pod_of, STEPS)})
    for row in STEPS.values():
        is_there = not row.needs or operator.attrgetter(row.needs)(config)
        for option in row.opens if is_there else ():
            _check_reachable(config, option, pod_of(row.id), target)
    # Its checkpoints.
    _check_reachable(config, STORAGE, TRAINER.id, target)
    _check_outside_data(config)
    config = dataclasses.replace(config, model=_name_network(config.model))
    resolved, recipe = resolve(config, shorter_side=_ASSUMED_SIDE, images=0)
    return resolved, [*find_ineffective(config.given, resolved, recipe)]


def _name_network(model: ModelConfig) -> ModelConfig:
    """Return the section `model` with the network of the weights file, as a local run has it."""
    if model.name != "auto":
        return model
    try:
        return name_network(model)
    except (ModelError, StorageError) as error:
        raise ConfigurationError(
            f"compile cannot read --model.weights {model.weights}, which names its network: set "
            "--model.name, too."
        ) from error


def _check_outside_data(config: Config) -> None:
    """Raise `ConfigurationError` if the steps would write where they look for images."""
    root = config.kubeflow.pipeline_root
    places = {
        "storage": config.kubeflow.storage,
        "pipeline_root": root and f"{root.rstrip('/')}/{config.name}",
    }
    for option, place in places.items():
        if f"{place}/".startswith(f"{str(config.data).rstrip('/')}/"):
            raise ConfigurationError(
                f"--kubeflow.{option} puts files into {place}, which lies in --data, so they would "
                "be taken for images: choose another folder."
            )


def _check_reachable(config: Config, option: str, step: str, target: Target) -> None:
    """Raise `ConfigurationError` if `step` cannot open the place that an option names."""
    place = operator.attrgetter(option)(config)
    if not place or place.startswith(ROOT_SCHEMES["oss"]):
        return
    problem = f"--{option.removesuffix('_file')} is {place}: a cluster needs a URL, such as gs://…"
    if target == "vertex" or not on_disk(place):
        raise ConfigurationError(f"{problem}.")
    if not config.kubeflow.step(step).mounts(place):
        raise ConfigurationError(
            f"{problem}, or a path on a volume that kubeflow.steps mounts in {step}."
        )


COMMANDS = {
    "compile": compile_,
    "run": run_commands.run,
    "schedule": run_commands.schedule,
    "runs": run_commands.runs,
    "logs": run_commands.logs,
    "stop": run_commands.stop,
}
"""First argument → function, whose docstring is its help; `overview` handles everything else."""
