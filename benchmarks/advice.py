"""Measures what each piece of the report's advice brings on a folder of images.

    uv run -m benchmarks.advice --data DIR --name photos --write

Each repeat, with a seed of its own, runs the pipeline as it is and with each option. The gain is
the difference of accuracy on the images that judge both runs, averaged over the seeds, with its 95%
confidence interval over images. `--write` updates the file from which reports quote gains. With
`--advice "--training.minutes 20"` it says which part of the time a search spends outside of epochs.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, write_results
from components.contract.confidence import Z
from components.contract.example import TRAIN, count_folds
from components.contract.image_table import read_images
from components.report.findings.measured import GAINS_FILE, Gain, read_gains
from pipeline_def.layout import Layout

_MODULE = "benchmarks.advice"
# What findings advise, as far as it needs neither downloads nor other images. `{epochs}`: twice as
# many as the run as it is.
ADVICE = (
    "--augmentation.policy trivial",
    "--training.epochs {epochs}",
)

Right = dict[str, bool]
"""SHA-256 of an image that judges → whether the prediction is right."""


def main() -> int:
    """Measure what the command line asks for; print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--data", required=True, help="folder of images")
    parser.add_argument("--name", required=True, help="what the images are, such as photographs")
    parser.add_argument("--advice", action="append", help=f"default: {', '.join(ADVICE)}")
    parser.add_argument("--option", action="append", default=[], help="of all runs: NAME=VALUE")
    parser.add_argument("--write", action="store_true", help="update what reports quote")
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    advice = arguments.advice or ADVICE
    progress = Progress(arguments.repeats * (1 + len(advice)))
    pairs: dict[str, list[tuple[Right, Right]]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        for seed in range(1, arguments.repeats + 1):
            common = [*(f"--{option}" for option in arguments.option), f"--training.seed={seed}"]
            facts, plain = _run(arguments.data, work, common)
            progress.report(f"seed {seed}, as it is")
            for text in advice:
                chosen = text.format(epochs=2 * facts["epochs"])
                found, changed = _run(arguments.data, work, [*common, *chosen.split()])
                pairs.setdefault(chosen, []).append((plain, changed))
                progress.report(f"seed {seed}, {chosen}{found['note']}")
            gains = [_estimate(arguments.name, facts, *one) for one in pairs.items()]
            # Hours of work: what is done is kept.
            table = _tabulate(arguments.name, gains)
            figures = {gain.options: gain._asdict() for gain in gains}
            write_results(_MODULE, [table], figures, arguments.json)
            if arguments.write:
                _write(arguments.name, gains)
    table.show()


def _run(data: str, work: str, chosen: list[str]) -> tuple[dict[str, Any], Right]:
    """Run the pipeline; return facts of the run, and what it predicts for the judging images."""
    run_pipeline(["--data", data, "--output", f"{work}/output", *chosen])
    summary = json.loads(Path(Layout(f"{work}/output").summary).read_text())
    newest = max(Path(work).glob("output/artifacts/Trainer/model_run/*"), key=lambda p: int(p.name))
    trained = json.loads((newest / "training.json").read_text())
    table = read_images(str(newest)).to_pydict()
    judged_by_folds = bool(count_folds(summary["evaluated_on"]))
    splits = {summary["evaluated_on"]} if not judged_by_folds else {*table["split"]}
    rows = zip(table["sha256"], table["split"], table["label"], table["predicted"], strict=True)
    search = trained.get("search")
    facts = {
        "epochs": trained["config"]["training"]["epochs"],
        "side": trained["config"]["transform"]["size"],
        "images": summary["examples"][TRAIN],
        "note": f", {search['overhead']:.1%} of the search outside of epochs" if search else "",
    }
    return facts, {key: label == found for key, split, label, found in rows if split in splits}


def _estimate(
    name: str, facts: dict[str, Any], chosen: str, pairs: list[tuple[Right, Right]]
) -> Gain:
    """Estimate the gain over images; the differences of an image are averaged over the seeds."""
    keys = sorted(set.intersection(*(plain.keys() & changed.keys() for plain, changed in pairs)))
    differences: npt.NDArray[np.float64] = np.array(
        [[float(changed[key]) - plain[key] for key in keys] for plain, changed in pairs]
    ).mean(axis=0)
    gain = float(differences.mean())
    half = Z * float(differences.std(ddof=1)) / len(keys) ** 0.5
    low, high = round(gain - half, 3), round(gain + half, 3)
    shown = (name, facts["images"], facts["side"], chosen, round(gain, 3), low, high, len(pairs))
    return Gain(*shown)


def _tabulate(name: str, gains: list[Gain]) -> Figures:
    table = Figures(f"Advice on {name}", ("advice", "gain", "95% interval", "seeds"))
    for of in gains:
        table.add(of.options, f"{of.gain:+.3f}", f"{of.low:+.3f} to {of.high:+.3f}", str(of.seeds))
    return table


def _write(name: str, gains: list[Gain]) -> None:
    """Replace the gains of this data set in the file that reports read."""
    kept = [gain for gain in read_gains() if gain.data != name]
    lines = ",\n".join(json.dumps(gain._asdict()) for gain in (*kept, *gains))
    GAINS_FILE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    sys.exit(main())
