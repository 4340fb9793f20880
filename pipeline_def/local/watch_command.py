"""`local_runner.py watch`: compares what `serve --log` kept with the run that made the model."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import text_format
from rich.console import Console
from tensorflow_metadata.proto.v0 import schema_pb2

from components.contract.errors import DataError, StorageError
from components.contract.example import TRAIN
from components.images.pixel_statistics import STATISTICS
from components.records.image_table import read_images
from components.storage.folder import is_file, read_bytes
from components.validation.feature_statistics import Statistics, read_statistics
from components.validation.served import Images, compare_served
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.display.rows import print_row, print_whole
from pipeline_def.local.output.folder import open_output
from pipeline_def.local.preparation import make_absolute
from pipeline_def.local.pushed_model import find_run
from pipeline_def.local.server.answer_log import ANSWERS, PICTURES, PROPERTIES, list_files
from pipeline_def.local.watch_options import WatchOptions
from pipeline_def.local.watch_results import read_results, write_results
from pipeline_def.startup import quick_imports
from pipeline_def.steps import EVALUATOR, SCHEMA_GEN, STATISTICS_GEN, TRAINER

# Windows that the file of results remembers.
_MOST_WINDOWS = 1000
_COLUMNS = (*PROPERTIES, *STATISTICS)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """What served images are compared with: the run that made a version."""

    judged: Images
    split: str
    schema: schema_pb2.Schema
    train: Statistics

    @classmethod
    def of(cls, output: str, version: str) -> "Trained":
        """Read the artifacts of the run that pushed a version.

        Raises:
            UserError: there is no such run, or its artifacts are gone.
        """
        run = find_run(output, version)
        if run is None:
            raise DataError(f"No run in {output} has pushed version {version}.")
        # Takes a second to import.
        from components.metrics.prediction_file import read_predictions

        schema = os.path.join(run.find_artifact(SCHEMA_GEN.id, "schema"), "schema.pbtxt")
        try:
            evaluated = read_predictions(run.find_artifact(EVALUATOR.id, "evaluation"))
            table = read_images(run.find_artifact(TRAINER.id, "model_run"))
            parsed = text_format.Parse(read_bytes(schema), schema_pb2.Schema())
            train = read_statistics(run.find_artifact(STATISTICS_GEN.id, "statistics"), TRAIN)
        except OSError as error:
            raise StorageError(f"Cannot read {error.filename}: {error.strerror}.") from error
        rows = {path: row for row, path in enumerate(table["path"].to_pylist())}
        order = [rows[path] for path in evaluated.filenames]
        pixels = {name: table[name].to_numpy()[order] for name in STATISTICS}
        predictions = evaluated.candidate
        judged = Images(predictions.labels, predictions.probabilities, pixels, {})
        return cls(judged, run.record.split, parsed, train)

    def compare(self, rows: Rows) -> list[str]:
        """Return in words how a window differs.

        Raises:
            DataError: the log is of a model with other classes.
        """
        scores = np.array([row["probabilities"] for row in rows], np.float32)
        if scores.shape[1:] != self.judged.probabilities.shape[1:]:
            raise DataError("The answers in the log are of a model with other classes.")
        columns = {name: np.array([row[name] for row in rows], float) for name in _COLUMNS}
        window = Images(
            self.judged.labels,
            scores,
            {name: columns[name] for name in STATISTICS},
            {feature: columns[name] for name, feature in PROPERTIES.items()},
        )
        found = compare_served(
            window, self.judged, split=self.split, schema=self.schema, train=self.train
        )
        return [f"{one.feature}: {one.text}" for one in found]


def watch(options: WatchOptions) -> int:
    """Judge the answers that have come since the last time; return 1 if any window differs.

    Raises:
        UserError: the log or the run cannot be read.
    """
    known = read_results(options.output)
    files = list_files(options.log)
    if not files:
        raise DataError(f"There is no log in {options.log}: start `serve --log {options.log}`.")
    seen = {name: rows for name, rows in known["seen"].items() if name in files}
    answers = _read_answers(options.log, files, seen)
    windows = [*_judge_all(answers, options)]
    for name in {answer.file for answer in answers}:
        of_file = [answer for answer in answers if answer.file == name]
        judged = Counter(answer.row["version"] for answer in of_file if answer.is_judged)
        total = Counter(seen.get(name, {})) + judged
        seen[name] = None if len(of_file) == judged.total() else dict(total)
    results = {"seen": seen, "windows": [*known["windows"], *windows][-_MOST_WINDOWS:]}
    write_results(options.output, results)
    waiting = sum(not answer.is_judged for answer in answers)
    has_pictures = any(name.startswith(PICTURES) for name in files)
    _print(options, windows, waiting, has_pictures=has_pictures)
    return int(any(window["findings"] for window in windows))


@dataclass
class _Answer:
    file: str
    row: dict[str, Any]
    is_judged: bool = False


def _judge_all(answers: Sequence[_Answer], options: WatchOptions) -> Iterator[dict[str, Any]]:
    """Yield the result of each full window, and mark its answers."""
    by_version: dict[str, list[_Answer]] = {}
    for answer in answers:
        by_version.setdefault(answer.row["version"], []).append(answer)
    for version, of_version in by_version.items():
        starts = range(0, len(of_version) - options.window + 1, options.window)
        if not starts:
            continue
        output = open_output(make_absolute(Config(output=options.output)))[0].output
        with quick_imports():
            trained = Trained.of(output, version)
        for start in starts:
            window = of_version[start : start + options.window]
            yield _judge(trained, version, [answer.row for answer in window])
            for answer in window:
                answer.is_judged = True


def _read_answers(
    log: str, files: Iterable[str], seen: Mapping[str, Mapping[str, int] | None]
) -> list[_Answer]:
    """Return the measured answers that no window has yet.

    `seen` has, for each file, version → how many of its answers windows have; None: all of them.
    """
    answers = []
    for name in sorted(files):
        if name.startswith(ANSWERS) and seen.get(name, {}) is not None:
            judged = Counter(seen.get(name))
            for row in _read_file(f"{log}/{name}"):
                judged[row["version"]] -= 1
                if judged[row["version"]] < 0:
                    answers.append(_Answer(name, row))
    return answers


def _read_file(url: str) -> Iterator[dict[str, Any]]:
    """Yield the measured answers of a file; none if the server has removed it since."""
    try:
        table = pq.read_table(pa.BufferReader(read_bytes(url)))
    except pa.ArrowException as error:
        raise StorageError(f"{url} is damaged: remove it.") from error
    except StorageError:
        if is_file(url):
            raise
        return
    for row in table.to_pylist():
        if row["probabilities"] and None not in (row[column] for column in _COLUMNS):
            yield row


def _judge(trained: Trained, version: str, rows: Rows) -> dict[str, Any]:
    times = [row["time"].strftime("%Y-%m-%d %H:%M") for row in rows]
    known = [row["known"] for row in rows]
    return {
        "version": version,
        "from": min(times),
        "to": max(times),
        "images": len(rows),
        # Only some models say it.
        "unknown": None if None in known else known.count(False),
        "findings": trained.compare(rows),
    }


def _print(
    options: WatchOptions, windows: Sequence[dict[str, Any]], waiting: int, *, has_pictures: bool
) -> None:
    console = Console(highlight=False)
    for window in windows:
        when = f"{window['from']} to {window['to']} UTC, version {window['version']}"
        found = len(window["findings"])
        print_row(console, "Window", f"{when}: {f'{found} changes' if found else 'as in training'}")
        for text in window["findings"]:
            print_row(console, "", text)
    print_row(console, "Waiting", f"{waiting:,} answers, a window has {options.window:,}")
    print_whole(console, "Results", Layout(options.output).watch_page)
    if has_pictures and any(window["findings"] for window in windows):
        words = f"{options.log}/{PICTURES} --output {options.output}"
        print_whole(console, "Next", f"uv run local_runner.py review {words}")
