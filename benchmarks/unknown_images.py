"""Measures how well images of classes that the model has never seen are told from known ones.

    uv run -m benchmarks.unknown_images
    uv run -m benchmarks.unknown_images --data DIR --option transfer.unfreeze=none

In turn, two classes are left out of the training. AUROC is the probability that a held-out image of
the other classes has a higher score than one of the two, for `known_score` and for the highest
probability. Held out is the folder `test` of DIR, else every fourth image. False alarms are the
fraction of known images that `known` denies.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, write_results
from components.predict.model import Answer, RankingModel, import_quietly
from pipeline_def.local.preparation import write_digits

_MODULE = "benchmarks.unknown_images"
_HELD_OUT = 4

Figure = dict[str, float]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=10)
    parser.add_argument("--data", help="folder of images; default: the built-in digits")
    parser.add_argument("--each", type=options.at_least_one, help="images a class to train on")
    parser.add_argument("--option", action="append", default=[], help="of the runs: NAME=VALUE")
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    figures: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        source = Path(arguments.data or f"{work}/digits")
        if not arguments.data:
            write_digits(str(source))
        labels = sorted({path.parent.name for path in source.rglob("*") if path.is_file()})
        pairs = _choose_pairs(labels, arguments.repeats)
        progress = Progress(len(pairs))
        for pair in pairs:
            name = " and ".join(pair)
            figures[name] = [_measure_pair(source, Path(work), pair, arguments)]
            progress.report(name)
            # Hours of work: what is done is kept.
            table = _tabulate(figures)
            write_results(_MODULE, [table], figures, arguments.json)
    table.show()


def _choose_pairs(labels: list[str], count: int) -> list[tuple[str, ...]]:
    """Return pairs in which all labels are about equally frequent; of two or three, single ones."""
    if len(labels) < 4:
        return [(label,) for label in labels[:count]]
    steps = range(1, len(labels) // 2 + 1)
    pairs = ((labels[i], labels[(i + n) % len(labels)]) for n in steps for i in range(len(labels)))
    unique = dict.fromkeys(tuple(sorted(pair)) for pair in pairs)
    return list(itertools.islice(unique, count))


def _measure_pair(
    source: Path, work: Path, left_out: tuple[str, ...], arguments: argparse.Namespace
) -> Figure:
    """Train without some classes; return what the model makes of held-out images."""
    target, output = work / "copy", work / "output"
    for folder in (target, output):
        shutil.rmtree(folder, ignore_errors=True)
    held_out = _copy(source, target, left_out, each=arguments.each)
    option_words = [f"--{option}" for option in arguments.option]
    run_pipeline(["--data", str(target), "--output", str(output), *option_words])
    [model] = output.glob("artifacts/Trainer/model/*/Format-Serving")
    import_quietly()
    served = RankingModel(str(model), top=1)
    answers = []
    for start in range(0, len(held_out), 64):
        files = [path.read_bytes() for path in held_out[start : start + 64]]
        answers += [answer for answer in served.predict(files) if isinstance(answer, Answer)]
    is_known = np.array([path.parent.name not in left_out for path in held_out])
    right = [a.ranking[0][0] == p.parent.name for a, p in zip(answers, held_out, strict=True)]
    denied = np.array([answer.known is False for answer in answers])
    scores = {
        "known": [answer.known_score for answer in answers],
        "softmax": [answer.ranking[0][1] for answer in answers],
    }
    areas = {name: float(roc_auc_score(is_known, values)) for name, values in scores.items()}
    areas["accuracy"] = float(np.mean(np.array(right)[is_known]))
    areas["false alarms"] = float(denied[is_known].mean())
    return {**areas, "recall": float(denied[~is_known].mean())}


def _copy(source: Path, target: Path, left_out: tuple[str, ...], *, each: int | None) -> list[Path]:
    """Copy the images to train on; return those that are held out, of all classes."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    tests = [path for path in files if path.parent.parent.name == "test"]
    if not tests:
        folders = itertools.groupby(files, key=lambda path: path.parent)
        tests = [path for _, group in folders for path in [*group][::_HELD_OUT]]
    rest = itertools.groupby(sorted({*files} - {*tests}), key=lambda path: path.parent)
    for folder, group in rest:
        if folder.name not in left_out:
            (target / folder.name).mkdir(parents=True, exist_ok=True)
            for path in itertools.islice(group, each):
                shutil.copy(path, target / folder.name / path.name)
    return tests


def _tabulate(figures: dict[str, list[Figure]]) -> Figures:
    rows = {name: row for name, [row] in figures.items()}
    columns = tuple(next(iter(rows.values())))
    ahead = sum(row["known"] > row["softmax"] for row in rows.values())
    title = f"Two classes left out, ahead of softmax in {ahead} of {len(rows)}"
    table = Figures(title, ("left out", *columns))
    for name, row in rows.items():
        table.add(name, *(f"{row[column]:.3f}" for column in columns))
    means = (np.mean([row[column] for row in rows.values()]) for column in columns)
    table.add("mean", *(f"{value:.3f}" for value in means))
    return table


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _measure))
