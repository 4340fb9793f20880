"""The table that ends a run: verdict, figures, paths and next commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from components.contract.artifact_files import on_disk
from components.contract.example import count_folds
from components.contract.printable import describe_corrections, format_duration
from pipeline_def.local.results import Summary
from pipeline_def.local.run_display import list_rows, print_row, print_whole, wrap

_MOST_WARNINGS = 5
_MOST_FINDINGS = 3
_MORE = "more, in the report"
# Outcome of the verdict → sign before it, color; only what is significant is green.
_SIGNS = {"blessed": ("✓", "green"), "undecided": ("?", "yellow"), "refused": ("✗", "red")}


def print_summary(
    summary: Summary, *, summary_file: str, output: str, evaluated: Sequence[int], seconds: float
) -> None:
    """Print the summary of a run in `output`, which took `seconds`.

    `evaluated` are the numbers of the runs there that evaluated a model, this one last.
    """
    # Imports SciPy.
    from components.metrics.proof import SIGNIFICANT

    sign, color = _SIGNS[summary["outcome"]]
    if summary["evidence"] not in (SIGNIFICANT, ""):
        color = color.replace("green", "yellow")
    published = "Published" if summary["pushed_model"] else "Not published"
    print()
    console = Console(highlight=False)
    for line in wrap(console, f"{sign} {summary['headline']} {published}."):
        console.print(Text(line, f"bold {color}"), soft_wrap=True)
    for name, text in (
        *_model_rows(summary),
        *_format_rows(summary),
        *_data_rows(summary),
        *_findings(summary),
    ):
        print_row(name, text)
    print()
    for name, text in _paths(summary, summary_file):
        print_whole(name, text)
    commands = _list_commands(summary, output, evaluated)
    for row in list_rows("Next", [f"uv run local_runner.py {command}" for command in commands]):
        print_whole(*row)
    print(f"\nDone in {format_duration(seconds)}.", flush=True)


def _model_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    split = summary["evaluated_on"]
    if count_folds(split):
        split = f"all images, cross-validated over {split}"
    accuracy, evidence = summary["metrics"]["accuracy"], summary["evidence"]
    yield "Accuracy", f"{accuracy:.4f} on {split}. {evidence}".strip()
    yield "Reasons", summary["blessing_reason"]
    if summary["baseline"]:
        run, version = summary["baseline"].get("run"), summary["baseline"]["version"]
        name = f"run {run}" if run else f"version {version}"
        yield "Before", f"{summary['baseline']['accuracy']:.4f}, {name}"


def _format_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield a row for all formats that go with the model, and one for each that does not."""
    failed = {kind: reason for kind, reason in summary["formats"].items() if reason}
    texts = [", ".join(kind for kind in summary["formats"] if kind not in failed)]
    texts += [f"{kind} is missing: {reason}" for kind, reason in failed.items()]
    yield from list_rows("Formats", [text for text in texts if text])


def _data_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    counts = ", ".join(f"{count:,} {split}" for split, count in summary["examples"].items())
    yield "Images", f"{counts}; {summary['rejected']:,} rejected, {summary['skipped']:,} skipped"
    if summary["corrections"]:
        reasons = "".join(f"; {reason}" for reason in summary["corrections"]["reasons"][:1])
        yield "Corrections", f"{describe_corrections(summary['corrections'])}{reasons}"
    if summary["duplicates"]:
        conflicts, leaks = summary["label_conflicts"], summary["in_several_splits"]
        images = f"{conflicts:,} image{' appears' if conflicts == 1 else 's appear'}"
        more = f"; {images} under two labels" if conflicts else ""
        more += f"; {leaks:,} in several splits" if leaks else ""
        copies = "copy" if summary["duplicates"] == 1 else "copies"
        yield "Duplicates", f"{summary['duplicates']:,} extra {copies}{more}"
    yield from list_rows("Warnings", summary["warnings"], _MOST_WARNINGS, _MORE)
    rate, waited = (
        summary["training"][key] for key in ("images_per_second", "input_wait_fraction")
    )
    yield "Training", f"{rate:,.0f} images/s, {waited:.1%} of the time waiting for input"
    if summary["search"]:
        yield "Search", summary["search"]["text"]
    if retries := summary["store_retries"]:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in retries.items())
        yield "Retries", f"{sum(retries.values()):,} requests to stores were retried: {causes}"


def _findings(summary: Summary) -> Iterator[tuple[str, str]]:
    findings = [f"{finding['text']}: {finding['advice']}" for finding in summary["findings"]]
    if summary["try_first"]:
        yield "Try first", f"run again with {summary['try_first']}"
    yield from list_rows("Findings", findings or ["none"], _MOST_FINDINGS, _MORE)


def _paths(summary: Summary, summary_file: str) -> Iterator[tuple[str, str]]:
    """Yield paths by title."""
    paths = {name: shlex.quote(_shown(path)) for name, path in summary["paths"].items()}
    yield "Report", paths["report"]
    yield "Numbers", shlex.quote(_shown(summary_file))
    model = shlex.quote(_shown(summary["pushed_model"])) if summary["pushed_model"] else ""
    rollback = summary["rolled_back_to"] if summary["blessed"] else None
    why = f": the rollback to version {rollback} keeps it out" if rollback else ""
    yield "Model", model or f"not pushed{why}"
    if "predictions" in paths:
        yield "Predictions", paths["predictions"]
    if summary["rejected"]:
        yield "Rejects", paths["rejects"]


def _list_commands(summary: Summary, output: str, evaluated: Sequence[int]) -> Iterator[str]:
    """Yield commands that review, serve, predict and compare."""
    where = f"--output {shlex.quote(_shown(output))}"
    if any(finding.get("section") == "suspects" for finding in summary["findings"]):
        yield f"review {where}"
    if summary["model_in_use"]:
        yield f"serve {where}"
        yield f"predict DIR {where}"
    else:
        yield f"predict DIR {where} --unblessed"
    if len(evaluated) > 1:
        before, last = evaluated[-2:]
        yield f"runs --compare {before} {last} {where}"


def _shown(path: str) -> str:
    """Return a path relative to the current folder if it lies below it."""
    if not on_disk(path):
        return path
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
