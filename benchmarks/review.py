"""Measures what a review brings: wrong labels made on purpose, found, decided, corrected.

    uv run -m benchmarks.review --data DIR --fraction 0.08 -- --training.epochs 20

Copies DIR, laid out as split/label/image or label/image, and moves a fraction of the images to a
wrong class, in train only if there are split folders. Runs the pipeline, decides about every
suspect through the review page's API as a person who knows the true label, runs again with the
corrections, and compares. Options behind `--` are those of the runs.
"""

import argparse
import hashlib
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import options
from benchmarks.measuring.process import MeasurementError
from benchmarks.measuring.results import Figures, write_results

_MODULE = "benchmarks.review"
_RUNNER = Path(__file__).parents[1] / "local_runner.py"


def main() -> int:
    """Measure what the command line asks for; print a table."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: _measure(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=1)
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--fraction", type=float, default=0.08, help="of labels; default: 0.08")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("run", nargs="*", metavar="OPTION")
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        images, output = Path(folder, "images"), Path(folder, "output")
        shutil.copytree(arguments.data, images)
        truth = flip_labels(images, arguments.fraction, seed=arguments.seed)
        common = ["--data", str(images), "--output", str(output), *arguments.run]
        _run(common)
        decided = _decide(output, truth)
        corrections = str(output / "corrections.csv")
        if not decided["suspects"]:
            raise MeasurementError("the first run has found no suspects")
        _run([*common, "--ingest.corrections", corrections])
        compared = _run(["runs", "--output", str(output), "--compare", "1", "2"])
        accuracies = [run["metrics"]["accuracy"] for run in read_runs(output)]
    table = Figures("Wrong labels, reviewed and corrected", ("", "images"))
    for name, value in decided.items():
        table.add(name, f"{value:,}")
    table.add("accuracy before, after", " → ".join(f"{value:.3f}" for value in accuracies))
    for line in find_effects(compared):
        table.add("comparison", line)
    table.show()
    figures = {**decided, "accuracies": accuracies, "comparison": compared}
    write_results(_MODULE, [table], figures, arguments.json)


def flip_labels(images: Path, fraction: float, *, seed: int) -> dict[str, str]:
    """Move images to a wrong class; return the SHA-256 of each moved image → its true label."""
    place = next(
        (images / name for name in ("train", "training") if (images / name).is_dir()), images
    )
    labels = sorted(path.name for path in place.iterdir() if path.is_dir())
    files = sorted(path for label in labels for path in (place / label).iterdir())
    dice = random.Random(seed)
    truth = {}
    for file in dice.sample(files, round(len(files) * fraction)):
        wrong = dice.choice([label for label in labels if label != file.parent.name])
        truth[hashlib.sha256(file.read_bytes()).hexdigest()] = file.parent.name
        file.rename(place / wrong / f"moved-{len(truth)}-{file.name}")
    return truth


def _decide(output: Path, truth: Mapping[str, str]) -> dict[str, int]:
    """Relabel every listed image that was moved; keep every other one that looks mislabeled."""
    with _serve_review(output) as address:
        listed = _request(f"{address}api/images")
        images = listed["images"]
        suspects = [image for image in images if "label" in (name for name, _ in image["reasons"])]
        found = [image for image in suspects if image["sha256"] in truth]
        for image in suspects:
            to = truth.get(image["sha256"])
            action = {"action": "relabel", "to": to} if to else {"action": "keep"}
            _request(f"{address}api/decisions", {"sha256": image["sha256"], **action})
    labels = listed["labels"]
    proposed = sum(labels[image["proposed"]] == truth[image["sha256"]] for image in found)
    return {
        "moved to a wrong class": len(truth),
        "suspects": len(suspects),
        "suspects that were moved": len(found),
        "of these, the proposed label is right": proposed,
    }


@contextmanager
def _serve_review(output: Path) -> Iterator[str]:
    """Start the review; yield the address of its page."""
    command = [sys.executable, str(_RUNNER), "review", "--output", str(output), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = ""
            for line in process.stdout:
                said += line
                if address := re.search(r"http://\S+/", line):
                    yield address[0]
                    break
            else:
                raise MeasurementError(f"the review did not start: {said[-500:]}")
        finally:
            process.send_signal(signal.SIGINT)


def _request(url: str, body: Mapping[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _run(arguments: Sequence[str]) -> str:
    """Run the program to its end; return what it prints."""
    command = [sys.executable, str(_RUNNER), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


def read_runs(output: Path) -> list[dict[str, Any]]:
    """Return the records of all runs, the first one first."""
    files = sorted((output / "runs").glob("*/run.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def find_effects(compared: str) -> list[str]:
    """Return the lines of a comparison that tell what the corrections brought."""
    return [line.strip() for line in compared.splitlines() if "confidence interval" in line]


if __name__ == "__main__":
    sys.exit(main())
