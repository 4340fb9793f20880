"""`local_runner.py review`: find a run's suspects, and serve the page until stopped."""

import collections
import contextlib
import json
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.contract.artifact_files import list_names
from components.contract.image_tables import SUSPECTS_FILE, read_suspects
from components.host.stopping import leave_to_server
from components.storage.folder import explaining_errors
from pipeline_def.apps.review.app import ReviewFacts, make_app
from pipeline_def.apps.review.corrected_copy import apply_to
from pipeline_def.apps.review.decisions import Decisions, gather_images, list_labels
from pipeline_def.apps.review.options import ReviewOptions, parse_options
from pipeline_def.apps.review.pictures import Pictures, Records
from pipeline_def.apps.serve.command import find_address, listen, make_server
from pipeline_def.local.output.folder import open_output
from pipeline_def.local.run_display import print_row, print_whole
from pipeline_def.runs.history import find_run
from pipeline_def.runs.record import RunRecord
from pipeline_def.runs.table import format_time
from pipeline_def.steps import EXAMPLE_GEN, REPORT

_DONE = {"keep": "kept", "relabel": "relabeled", "remove": "removed", "unsure": "unsure"}


def review(arguments: Sequence[str]) -> int:
    """Let a person decide about a run's suspects, or apply the decisions to a copy.

    Raises:
        UserError: an option is wrong, there are no suspects, the corrections file is not valid, or
            the address is in use; or see `apply_to`.
    """
    options = parse_options(arguments)
    if options.apply_to is not None:
        apply_to(options.apply_to, options)
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        _serve_page(options)
    return 0


def _serve_page(options: ReviewOptions) -> None:
    """Serve the page until a signal arrives, then say what was decided."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    prepared = prepare(options)
    if prepared is None:
        print_row("Suspects", "none: there is nothing to review")
        return
    facts, decisions, pictures = prepared
    with listen(options) as listening:
        address = find_address(options, listening)
        leave_to_server()
        try:
            _print_start(facts, decisions, f"{address}/", options)
            make_server(make_app(facts, decisions, pictures, options), options).run([listening])
        finally:
            _print_end(facts, decisions)


def prepare(options: ReviewOptions) -> tuple[ReviewFacts, Decisions, Pictures] | None:
    """Gather the images, and what was decided about them; None if there are none.

    Raises:
        UserError: no run has looked for suspects, or a file is not valid.
    """
    output = open_output(options.output).folder
    missing = "has looked for suspects, or their files are gone"
    run = find_run(output, _find_suspects, missing=missing)
    file = os.path.join(_find_suspects(run.record), SUSPECTS_FILE)
    with explaining_errors("read", file):
        suspects = read_suspects(file)
    if not suspects:
        return None
    images = gather_images(suspects)
    examples = run.find_artifact(EXAMPLE_GEN.id, "examples")
    digests = {image.sha256: image.path for image in images}
    paths = {path for image in images for path in (image.path, *image.neighbors)}
    pictures = Pictures(run.record.data.folder, digests, Records(examples, paths))
    data, corrections = run.record.configuration.get("data"), options.find_corrections(run)
    words = [*(["--data", data] if data else []), "--output", options.output]
    words += ["--ingest.corrections", corrections, *_list_given(run.record.configuration)]
    facts = ReviewFacts(
        title=f"run {run.number} of {format_time(run.record.started)}",
        images=images,
        labels=list_labels(examples, images),
        who=options.reviewer,
        next_command=f"uv run local_runner.py {shlex.join(words)}",
    )
    return facts, Decisions(corrections, digests), pictures


def _list_given(configuration: Mapping[str, Any]) -> Iterator[str]:
    """Yield the other options of a run, as only the labels should differ in the next one."""
    for name in configuration.get("given", ()):
        section, _, field = name.rpartition(".")
        fields = configuration.get(section, {}) if section else configuration
        if field in fields and name not in ("data", "output", "ingest.corrections"):
            value = fields[field]
            yield from (f"--{name}", value if isinstance(value, str) else json.dumps(value))


def _find_suspects(record: RunRecord) -> str:
    """Return the folder with the suspects of a run; "" if there is none."""
    step = record.steps.get(REPORT.id)
    artifact = step.outputs.get("suspects") if step else None
    return artifact.uri if artifact and SUSPECTS_FILE in list_names(artifact.uri) else ""


def _print_start(
    facts: ReviewFacts, decisions: Decisions, page: str, options: ReviewOptions
) -> None:
    decided = len(decisions.read()[1])
    earlier = f", {decided:,} of them decided" if decided else ""
    print_row("Images", f"{len(facts.images):,} images of {facts.title}{earlier}")
    print_whole("Decisions", decisions.path)
    print_whole("Page", page)
    if not options.is_local:
        print_row("", "Anyone who can reach this address can decide.")
    print_row("", "Press Ctrl-C to stop. Every decision is saved at once.")


def _print_end(facts: ReviewFacts, decisions: Decisions) -> None:
    actions = collections.Counter(row.action for row in decisions.read()[1].values())
    counts = ", ".join(f"{count:,} {_DONE[action]}" for action, count in actions.items())
    decided = f"{actions.total():,} of {len(facts.images):,} images"
    print()
    print_row("Decided", f"{decided}: {counts}" if counts else decided)
    print_whole("Decisions", decisions.path)
    if actions:
        print_whole("Next", facts.next_command)
