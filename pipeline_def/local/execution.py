"""Runs the pipeline with its display, log and record."""

import functools
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable

from components.contract.configuration import to_dict
from components.contract.errors import UserError
from components.contract.printable import make_printable
from components.evaluation.baseline_lookup import find_unusable
from components.host.machine import explaining_full_disk
from components.host.startup import quick_imports
from pipeline_def.code_digest import forget_imports
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.first_look import FirstLook
from pipeline_def.local.output.folder import Output
from pipeline_def.local.output.integrity import adopt_moved, drop_incomplete, note_files
from pipeline_def.local.results import read_results
from pipeline_def.local.run_display import RunDisplay, redirect_output
from pipeline_def.local.unchanged import digest_program, find_unchanged, list_again
from pipeline_def.runs.record import Recorder, RunRecord, Step, Steps, describe_failure


def execute(
    config: Config, *, output: Output | None = None, seen: FirstLook | None = None
) -> RunRecord | None:
    """Run all steps; return the record, or None after printing an unexpected error.

    With a first look at the images, they are not listed again, and a user's network is built once
    before the first step.

    Raises:
        UserError: what stopped the run, if the user can fix it.
    """
    output = output or Output(config.output)
    logs = Layout(config.output).logs
    os.makedirs(logs, exist_ok=True)
    log_file = os.path.join(logs, time.strftime("run-%Y%m%d-%H%M%S.log"))
    print(f"Log:    {make_printable(log_file)}", flush=True)
    with redirect_output(log_file) as terminal:
        display = RunDisplay(terminal)
        try:
            logging.basicConfig(level=logging.INFO)
            with explaining_full_disk(config.output), output.storing():
                return _run_recorded(config, output, display, seen)
        except UserError:
            raise
        except Exception as error:
            traceback.print_exc()
            reason = describe_failure(error)
    where = f" in {display.step}" if display.step else ""
    for line in (f"local_runner.py: failed{where}: {reason}", f"Full log: {log_file}"):
        print(make_printable(line), file=sys.stderr)
    return None


def _run_recorded(
    config: Config, output: Output, display: RunDisplay, seen: FirstLook | None
) -> RunRecord:
    """Run the steps, and record how the run ended."""
    # Kubeflow's section does not matter here, and its variables may hold secrets.
    configuration = {k: v for k, v in to_dict(config).items() if k != "kubeflow"}
    program = digest_program(config)
    unchanged = seen and find_unchanged(
        config, configuration, program=program, listing=seen.listing
    )
    if unchanged:
        code = unchanged.code
    else:
        display.say("Loading TensorFlow and TFX …")
        code, list_steps = _load_pipeline(config, seen)
    recorder = Recorder(
        config.output, pipeline=config.name, configuration=configuration, code=code, program=program
    )
    total = len(unchanged.steps if unchanged else code)
    with recorder.recording(), display.running(total=total):
        if unchanged:
            steps = list_again(unchanged)
        else:
            _check(config, display, seen)
            steps = list_steps(recorder.record.id)
        for name, run in steps:
            _run_step(name, run, recorder, display)
            output.store_step()
    recorder.end("done")
    return recorder.record


def _load_pipeline(
    config: Config, seen: FirstLook | None
) -> tuple[dict[str, str], Callable[[str], Steps]]:
    """Load TFX; return the digest of each step's code, and the function that lists the steps."""
    with quick_imports():
        from pipeline_def.local.runner import list_steps
        from pipeline_def.pipeline import create_pipeline

    listing = seen.listing if seen else ""
    pipeline = create_pipeline(config, metadata=Layout(config.output).metadata, listing=listing)
    code = {step.id: step.exec_properties.get("code_digest", "") for step in pipeline.components}
    return code, functools.partial(list_steps, pipeline)


def _run_step(name: str, run: Callable[[], Step], recorder: Recorder, display: RunDisplay) -> None:
    """Run a step, show and record it."""
    recorder.step_started(name)
    display.step_started(name)
    step = run()
    if step.state == "done":
        note_files(Layout(recorder.output), step)
    recorder.step_ended(name, step, **read_results(recorder.record, name, step))
    display.step_ended(name, step)


def _check(config: Config, display: RunDisplay, seen: FirstLook | None) -> None:
    """Try the user's functions, and look for results that were moved or damaged."""
    forget_imports(config.model.build_fn, config.augmentation.fn)
    if seen and config.model.build_fn:
        from components.trainer.networks.networks import check_build_fn

        check_build_fn(config.model, size=config.transform.size or 0, classes=seen.classes)
    if seen and config.augmentation.fn:
        from components.trainer.input.augment import check_own

        check_own(config.augmentation.fn, size=config.transform.size or 0)
    layout = Layout(config.output)
    unusable = find_unusable(layout.pushed)
    for version, reason in unusable.items():
        display.say(f"The pushed model {version} is not used: {reason}.")
    for former in adopt_moved(layout):
        display.say(f"The results made in {former} are now read from {layout.output}.")
    for folder in drop_incomplete(layout, unusable):
        display.say(f"{folder} is missing or damaged and will be rebuilt.")
