"""Measures how well wrong labels are found: labels are flipped on purpose, and the pipeline runs.

    uv run -m benchmarks.label_errors
    uv run -m benchmarks.label_errors --data DIR --rate 0.08 --pretrained

Labels are flipped at random, or between similar classes: to the label that a run on the untouched
images proposes most often instead. Precision is the fraction of k flipped labels among the k images
with the highest scores, recall the fraction of them that is listed. No label changes the features
of a pretrained network, so that one run is enough.
"""

import argparse
import collections
import itertools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, Spread, write_results
from components.contract.image_tables import open_images, read_embeddings
from components.report.suspects.labels import find_wrong_labels, judge_labels
from components.report.suspects.similar import Columns, Features
from pipeline_def.local.preparation import write_digits

_MODULE = "benchmarks.label_errors"
_RATES = (0.03, 0.08, 0.2)
_KINDS = ("random", "similar")
# Figure → digits after the point.
_SHOWN = {"listed": 0, "suspects": 2, "recall": 2, "proposed": 2}

Figure = dict[str, float]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--data", help="folder of images; default: the built-in digits")
    parser.add_argument("--rate", type=float, action="append", help=f"flipped; default: {_RATES}")
    parser.add_argument(
        "--pretrained", action="store_true", help="flip beside the features of a run"
    )
    parser.add_argument("--option", action="append", default=[], help="of the runs: NAME=VALUE")
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    rates = arguments.rate or _RATES
    progress = Progress(1 + arguments.repeats * len(rates) * len(_KINDS))
    figures: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        source = Path(arguments.data or f"{work}/digits")
        if not arguments.data:
            write_digits(str(source))
        clean, features = _run(_copy(source, Path(work), {}), arguments.option)
        suspects, _ = find_wrong_labels(clean, features)
        clean["proposed"] = _score(clean, features)[1]
        figures["none"] = [{"listed": len(suspects), "images": len(clean["label"])}]
        progress.report("none")
        for seed in range(arguments.repeats):
            for kind, rate in itertools.product(_KINDS, rates):
                flipped = _flip(clean, rate, seed, similar=kind == "similar")
                if arguments.pretrained:
                    names = [Path(path).name for path in clean["path"]]
                    pairs = zip(names, clean["label"], strict=True)
                    labels = [flipped.get(name, label) for name, label in pairs]
                    run = {**clean, "label": np.array(labels, object)}, features
                else:
                    run = _run(_copy(source, Path(work), flipped), arguments.option)
                found = _judge(*run)
                figures.setdefault(f"{kind}, {rate:.0%}", []).append(found)
                progress.report(f"{kind} {rate}")
            # Hours of work: what is done is kept.
            table = _tabulate(figures, len(clean["label"]))
            write_results(_MODULE, [table], figures, arguments.json)
    table.show()


def _flip(clean: Columns, rate: float, seed: int, *, similar: bool) -> dict[str, str]:
    """Return file name → wrong label for a fraction of the images."""
    random = np.random.default_rng(seed)
    labels = sorted({*clean["label"]})
    proposed = zip(clean["label"], clean["proposed"], strict=True)
    confused = collections.Counter(proposed).most_common()
    nearest = {label: next(b for (a, b), _ in confused if a == label) for label in labels}
    rows = random.choice(len(clean["path"]), round(rate * len(clean["path"])), replace=False)
    flipped = {}
    for row in rows.tolist():
        label = clean["label"][row]
        others = [other for other in labels if other != label]
        wrong = nearest[label] if similar else others[random.integers(len(others))]
        flipped[Path(clean["path"][row]).name] = wrong
    return flipped


def _copy(source: Path, work: Path, flipped: dict[str, str]) -> Path:
    """Copy the images, some to the folder of another label; names start with the true label."""
    target = work / "copy"
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        name = f"{path.parent.name}@{'-'.join(path.relative_to(source).parts)}"
        label = flipped.get(name, path.parent.name)
        folder = target / path.relative_to(source).parent.parent / label
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    return target


def _run(folder: Path, chosen: list[str]) -> tuple[dict[str, Any], Features]:
    """Run the pipeline; return the table of images and their features."""
    output = folder.with_name("output")
    shutil.rmtree(output, ignore_errors=True)
    options_of_run = [f"--{option}" for option in chosen]
    run_pipeline(["--data", str(folder), "--output", str(output), *options_of_run])
    [run] = output.glob("artifacts/Trainer/model_run/*")
    table, features = open_images(str(run)).read(), read_embeddings(str(run))
    assert features is not None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    # The next run replaces the file.
    return columns, np.array(features)


def _score(columns: Columns, features: Features) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the probability that each label is wrong, and the label that is more likely."""
    labels, ids = np.unique(columns["label"].astype(str), return_inverse=True)
    judged = judge_labels(features, np.arange(len(ids)), ids)
    return judged.wrong, labels[judged.proposed]


def _judge(columns: Columns, features: Features) -> Figure:
    true = np.array([Path(path).name.partition("@")[0] for path in columns["path"]])
    wrong = columns["label"] != true
    scores, proposed = _score(columns, features)
    suspects, errors = find_wrong_labels(columns, features)
    listed = np.isin(columns["path"], [suspect.path for suspect in suspects])
    first = np.argsort(-scores, kind="stable")[: wrong.sum()]
    right = (proposed == true)[first[wrong[first]]]
    low, likely, high, _ = errors or (0, 0, 0, 0)
    figures = {"flipped": int(wrong.sum()), "suspects": float(wrong[first].mean())}
    figures["recall"] = float(listed[wrong].mean())
    bounds = {"low": low, "likely": likely, "high": high}
    return {**figures, **bounds, "proposed": float(right.mean()), "listed": len(suspects)}


def _tabulate(figures: dict[str, list[Figure]], images: int) -> Figures:
    columns = ("flipped", "precision", "recall", "proposed label", "estimate", "listed")
    table = Figures(f"Wrong labels of {images:,} images", columns)
    for name, runs in figures.items():
        listed, *cells = (
            Spread.of([run[key] for run in runs]).show(digits) if key in runs[0] else ""
            for key, digits in _SHOWN.items()
        )
        bounds = (f"{r['likely']} ({r['low']} to {r['high']})" for r in runs if "likely" in r)
        table.add(f"{name}, {runs[0].get('flipped', 0)}", *cells, "; ".join(bounds), listed)
    return table


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _measure))
