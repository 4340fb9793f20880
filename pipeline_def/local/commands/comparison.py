"""`local_runner.py runs --compare`: a page that compares two runs."""

import contextlib
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from components.contract.errors import DataError, StorageError
from components.contract.example import FILENAME, SHA256, decode_text
from components.contract.printable import describe_corrections, name_some
from components.evaluation.config import EvaluationConfig
from components.images.thumbnails import Thumbnail, make_thumbnail
from components.metrics.prediction_file import MOST_SCORES, count_scores, read_predictions
from components.records.shard_files import list_shards, read_index
from components.records.tfrecord import read_features
from components.report.comparison import (
    ComparisonFacts,
    EvaluatedRun,
    compare_runs,
    render_comparison,
)
from components.report.predicted_images import read_images
from pipeline_def.layout import Layout
from pipeline_def.local.run_display import list_rows, print_row, print_whole
from pipeline_def.runs.history import SelectedRun, flatten, select
from pipeline_def.runs.record import RunRecord
from pipeline_def.runs.table import format_time
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN

_MAX_DROP = "evaluation.max_accuracy_drop"
_MOST_NAMES = 6
_NAME, _KEY = FILENAME.encode(), SHA256.encode()
# Hexadecimal digits of a digest that decide whether an image is compared.
_DIGITS = 8
# Not settings: locations, which the page shows elsewhere, and which options were given.
_NO_SETTINGS = ("data", "output", "given")


def show_comparison(wanted: Sequence[str], output: str, *, to: str | None) -> None:
    """Compare the second run with the first, write the page, and print verdict and place of it.

    Raises:
        UserError: a run does not exist, has no evaluation, or its artifacts are missing.
    """
    first, second = (select(name, output) for name in wanted)
    if (first.output, first.record.id) == (second.output, second.record.id):
        raise DataError(f"{wanted[0]} and {wanted[1]} are the same run: name two runs.")
    share = max(map(_choose_share, (first, second)))
    named = first.number != second.number
    names = [f"run {run.number}" for run in (first, second)] if named else ["A", "B"]
    facts = compare_runs(
        _read(names[0], first, share),
        _read(names[1], second, share),
        newest=1 if second.record.started >= first.record.started else 0,
        share=share,
    )
    path = os.path.abspath(to or Layout(second.output).comparison)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(render_comparison(facts))
    except OSError as error:
        raise StorageError(
            f"Cannot write {path} ({error.strerror}): choose another file with --to."
        ) from error
    _print(facts, path)


def _read(name: str, run: SelectedRun, share: int) -> EvaluatedRun:
    """Read the predictions of a run, and the digest of each image from its examples.

    One image in `share` is read, the same ones in each run, by their content.
    """
    record, keys = run.record, dict[str, str]()
    with _reporting_missing(run):
        examples = run.find_artifact(EXAMPLE_GEN.id, "examples")
        labels = read_index(examples)["labels"]
        for path in list_shards(examples, record.split):
            for features in read_features(path, (_NAME, _KEY)):
                key = decode_text(bytes(features[_KEY]))
                if int(key[-_DIGITS:], 16) % share == 0:
                    keys[decode_text(bytes(features[_NAME]))] = key
        evaluated = read_predictions(
            run.find_artifact(EVALUATOR.id, "evaluation"),
            only=None if share == 1 else keys.keys(),
        )
        if missing := [name for name in evaluated.filenames if name not in keys]:
            raise StorageError(f"{examples} does not hold {missing[0]!r}, which was evaluated.")

    def read_thumbnails(filenames: Collection[str]) -> dict[str, Thumbnail | None]:
        images = read_images(examples, record.split, filenames)
        return {name: make_thumbnail(encoded) for name, encoded in images}

    settings = dict(flatten(record.configuration))
    return EvaluatedRun(
        name=name,
        title=f"run {run.number}, started {format_time(record.started)}".removeprefix(f"{name}, "),
        output=run.output,
        split=record.split,
        parts={
            "images": _describe_images(record, labels),
            "settings": {key: settings[key] for key in settings if key not in _NO_SETTINGS},
            "code of steps": record.code,
            "versions": record.versions,
        },
        max_drop=float(settings.get(_MAX_DROP, EvaluationConfig.max_accuracy_drop)),
        evaluated=evaluated,
        keys=[keys[name] for name in evaluated.filenames],
        read_thumbnails=read_thumbnails,
    )


def _describe_images(record: RunRecord, labels: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Identify the images of a run, and count those of each split and label."""
    used = record.data.corrections
    return {
        "folder": record.data.folder,
        "fingerprint": record.data.images,
        "corrections": (
            f"{used['file']} ({used['sha256'][:8]}): {describe_corrections(used)}" if used else None
        ),
        # 0 without spans.
        "span": record.data.span or None,
        "version": record.data.version,
        **{f"{split}: images": sum(of_split.values()) for split, of_split in labels.items()},
        **{f"{split}: classes": len(of_split) for split, of_split in labels.items()},
        **{
            f"{split}: {label}": images
            for split, of_split in labels.items()
            for label, images in of_split.items()
        },
    }


def _choose_share(run: SelectedRun) -> int:
    """Return 1 to compare all images, or else n to compare about one in n.

    Memory then holds about `MOST_SCORES` probabilities of a run at most.
    """
    with _reporting_missing(run):
        scores = math.prod(count_scores(run.find_artifact(EVALUATOR.id, "evaluation")))
    return max(1, math.ceil(scores / MOST_SCORES))


@contextlib.contextmanager
def _reporting_missing(run: SelectedRun) -> Iterator[None]:
    """Raise `StorageError` where artifacts are missing or damaged."""
    try:
        yield
    except (OSError, ValueError, LookupError) as error:
        missing = getattr(error, "filename", None)
        reason = f"{missing} cannot be read" if missing else "its artifacts are damaged"
        raise StorageError(
            f"Run {run.record.id} in {run.output} cannot be compared: {reason}. Run the pipeline "
            "again."
        ) from error


def _print(facts: ComparisonFacts, path: str) -> None:
    # Colored only if one of the runs has won.
    color = {"better": " green", "worse": " red"}.get(facts.outcome, "")
    print_row("Verdict", facts.headline, style=f"bold{color}")
    parts = facts.parts.items()
    differing = [f"{title}: {name_some([*rows], _MOST_NAMES)}" for title, rows in parts if rows]
    for row in (*list_rows("Reasons", facts.reasons), *list_rows("Differs in", differing)):
        print_row(*row)
    for run in (facts.first, facts.second):
        print_whole(run.name.capitalize(), f"{run.title}, in {run.output}")
    print_whole("Page", path)
