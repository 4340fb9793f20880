"""Runs the whole image pipeline on this machine: `uv run local_runner.py --help`."""

from __future__ import annotations

import dataclasses
import functools
import io
import logging
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from components.contract.errors import UserError
from pipeline_def.config.command_line import make_parser, parse
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.preparation import check_writable, make_absolute, prepare

if TYPE_CHECKING:
    from pipeline_def.local.runner import NodeRun
    from pipeline_def.local.summary import Summary

_Result = TypeVar("_Result")

_DESCRIPTION = """Turns a folder of labelled images into a trained, evaluated and served model, on
this machine. Without options it does so for a built-in sample of handwritten digits. `inspect DIR`
instead of options looks at a folder and says within seconds whether a run would start; `schema
DIR` writes down what its examples are like, for a person to correct; `runs` lists earlier runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit status: 0, 1 for a bug or 2 for a user's mistake."""
    started = time.monotonic()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files may be any bytes, and some terminals print ASCII only.
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and (command := _COMMANDS.get(arguments[0])):
            return command(arguments[1:])
        config, _ = parse(make_parser("local_runner.py", _DESCRIPTION), arguments)
        config = make_absolute(config)
        layout = Layout(config.output)
        check_writable(config)
        config = prepare(config, layout)
        summary = _run(config, layout, functools.partial(_summarize, config, layout))
    except UserError as error:
        print(f"local_runner.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("local_runner.py: stopped; what is finished is kept.", file=sys.stderr)
        return 130
    if summary is None:
        return 1
    from pipeline_def.local.console import print_summary

    print_summary(summary, summary_file=layout.summary, seconds=time.monotonic() - started)
    return 0


def _inspect(arguments: list[str]) -> int:
    """Look at a folder, the first argument or `--data`; return 0 if a run on it would start."""
    from pipeline_def.local.inspection import inspect

    arguments = _with_folder(arguments)
    description = "Looks at a folder of images: inspect DIR [OPTION ...]"
    config, _ = parse(make_parser("local_runner.py inspect", description), arguments)
    if config.data is None:
        raise UserError("Name the folder: local_runner.py inspect DIR.")
    inspect(make_absolute(config))
    return 0


def _schema(arguments: list[str]) -> int:
    """Run the nodes up to SchemaGen, and write what it inferred to a file."""
    description = (
        "Writes the schema of a folder of images, for a person to correct and to give to later "
        "runs as --validation.schema: schema [DIR] [--to FILE] [OPTION ...]"
    )
    parser = make_parser("local_runner.py schema", description)
    parser.add_argument("--to", help="File to write; unset: schema.pbtxt in --output.")
    config, options = parse(parser, _with_folder(arguments))
    validation = dataclasses.replace(config.validation, schema=None)
    config = make_absolute(dataclasses.replace(config, validation=validation))
    layout = Layout(config.output)
    check_writable(config)
    target = os.path.abspath(options["to"] or layout.schema)

    def write(nodes: dict[str, NodeRun]) -> str:
        from pipeline_def.local.schema_command import write_schema

        write_schema(nodes, target)
        return target

    if _run(prepare(config, layout), layout, write, last="SchemaGen") is None:
        return 1
    print(f"\nSchema: {target}\n        Correct it, and run with --validation.schema {target}")
    return 0


def _runs(arguments: list[str]) -> int:
    """Print the runs of the output folder, or where a pushed model comes from."""
    description = (
        "Lists the runs of an output folder, newest last, with what each changed and reached: "
        "runs [--output DIR] [--lineage VERSION] [--json]"
    )
    parser = make_parser("local_runner.py runs", description)
    parser.add_argument(
        "--lineage",
        metavar="VERSION",
        help="Show where a pushed model, a version or its folder, comes from, down to its images.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON, for other programs.")
    config, options = parse(parser, arguments)
    from pipeline_def.local.run_table import show_lineage, show_runs

    output = make_absolute(config).output
    if options["lineage"]:
        show_lineage(output, options["lineage"], as_json=options["json"])
    else:
        show_runs(output, as_json=options["json"])
    return 0


def _with_folder(arguments: list[str]) -> list[str]:
    """Let the first argument be the folder of images."""
    if arguments and not arguments[0].startswith("-"):
        return ["--data", *arguments]
    return arguments


_COMMANDS = {"inspect": _inspect, "runs": _runs, "schema": _schema}


def _summarize(config: Config, layout: Layout, nodes: dict[str, NodeRun]) -> Summary:
    """Write the summary, and copy the page to where it is easily found."""
    from components.storage.text_artifact import PAGE_FILE
    from pipeline_def.local.summary import summarize

    page = os.path.join(nodes["ImageReport"].outputs["html"].uri, PAGE_FILE)
    shutil.copyfile(page, layout.report)

    summary = summarize(nodes, config)
    summary.write(layout.summary)
    return summary


def _run(
    config: Config,
    layout: Layout,
    finish: Callable[[dict[str, NodeRun]], _Result],
    *,
    last: str | None = None,
) -> _Result | None:
    """Run the nodes, up to `last`, and `finish`; return None after an error not the user's."""
    from pipeline_def.local.console import RunDisplay, redirect_output

    os.makedirs(layout.logs, exist_ok=True)
    log_file = os.path.join(layout.logs, time.strftime("run-%Y%m%d-%H%M%S.log"))
    print(f"Log:    {log_file}\nLoading TensorFlow and TFX …", flush=True)
    display, failure = None, None
    with redirect_output(log_file) as terminal:
        try:
            logging.basicConfig(level=logging.INFO)
            from pipeline_def.local.runner import run_pipeline
            from pipeline_def.pipeline import create_pipeline

            pipeline = create_pipeline(config)
            names = [component.id for component in pipeline.components]
            total = names.index(last) + 1 if last else len(names)
            display = RunDisplay(terminal, total=total)
            with display.running():
                nodes = run_pipeline(pipeline, display, last=last)
            return finish(nodes)
        except UserError:
            raise
        except Exception as error:
            traceback.print_exc()
            failure = error
    reason = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    where = f" after {display.node} began" if display else ""
    print(f"local_runner.py: failed{where}: {reason}\nThe whole story: {log_file}", file=sys.stderr)
    return None


if __name__ == "__main__":
    sys.exit(main())
