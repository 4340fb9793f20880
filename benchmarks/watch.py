"""Measures the alarms of `local_runner.py watch`: how often they are false, and what they find.

    uv run -m benchmarks.watch
    uv run -m benchmarks.watch --data DIR --option model.name=cnn

A model learns from half of the images, without those of the last label. In each trial a random part
of the other half is the window, and the rest is what it is compared with: unchanged; all or a fifth
of them blurred, as by one pixel of what the model sees, or half as bright; or a fifth of the last
label, a new class. Windows of images of one kind differ by chance only.
"""

import argparse
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress, run_pipeline
from benchmarks.measuring.results import Figures, write_results
from components.contract.errors import DataError
from components.images.pixel_statistics import STATISTICS
from components.predict.model import ImageModel, import_quietly
from components.validation.served import Images, compare_served
from pipeline_def.local.preparation import write_digits
from pipeline_def.local.server.answer_log import PROPERTIES
from pipeline_def.local.server.measurement import find_measure
from pipeline_def.local.server.versions import find_newest
from pipeline_def.local.watch_command import Trained

_MODULE = "benchmarks.watch"
_BATCH = 64

Change = Callable[[Image.Image], Image.Image]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=100)
    parser.add_argument("--data", help="folder of images in folders; default: the built-in digits")
    parser.add_argument("--option", action="append", default=[], help="of the run: NAME=VALUE")
    parser.add_argument("--window", type=int, default=500, help="images of a window")
    parser.add_argument("--unchanged", type=int, default=2000, help="unchanged windows")
    return parser


def blur(image: Image.Image, side: int) -> Image.Image:
    """Blur by a standard deviation of one pixel of an image of `side` pixels."""
    return image.filter(ImageFilter.GaussianBlur(min(image.size) / side))


def darken(image: Image.Image) -> Image.Image:
    """Halve all levels."""
    return image.point(lambda level: level // 2)


def apply(change: Change | None, file: bytes) -> bytes:
    """Return the changed image as a JPEG of a high quality; the file itself without a change."""
    if change is None:
        return file
    buffer = io.BytesIO()
    change(Image.open(io.BytesIO(file)).convert("RGB")).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


class Served:
    """What the server would log of images."""

    def __init__(self, output: str, version: str, labels: Sequence[str]) -> None:
        """Load a version."""
        self._model = ImageModel(os.path.join(output, "pushed", version))
        self._measure, self._labels = find_measure(output, version), labels

    def describe(self, files: Sequence[bytes]) -> Images:
        """Predict and measure image files."""
        batches = (files[start : start + _BATCH] for start in range(0, len(files), _BATCH))
        scores = [
            self._model.predict("serving_default", batch)["probabilities"] for batch in batches
        ]
        rows = [self._measure(file) for file in files]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        pixels = {name: columns[name] for name in STATISTICS}
        properties = {feature: columns[name] for name, feature in PROPERTIES.items()}
        return Images(self._labels, np.concatenate(scores), pixels, properties)


def join(*parts: tuple[Images, Any]) -> Images:
    """Join rows, each of some images."""

    def concatenate(name: str) -> dict[str, Any]:
        first = getattr(parts[0][0], name)
        return {
            key: np.concatenate([getattr(images, name)[key][rows] for images, rows in parts])
            for key in first
        }

    scores = np.concatenate([images.probabilities[rows] for images, rows in parts])
    return Images(parts[0][0].labels, scores, concatenate("pixels"), concatenate("properties"))


def _try(
    trained: Trained, known: Images, other: Images | None, *, window: int, share: float, trials: int
) -> Iterator[bool]:
    """Yield whether a window, of which `share` are rows of `other`, raises an alarm."""
    random = np.random.default_rng(0)
    of_other, total = round(window * share), len(known.probabilities)
    aligned = other is not None and len(other.probabilities) == total
    for trial in range(trials):
        order = random.permutation(total)
        taken = order[:window] if aligned else order[: window - of_other]
        parts = [(known, taken[of_other:] if aligned else taken)]
        if other is not None:
            rows = taken[:of_other] if aligned else random.permutation(len(other.probabilities))
            parts.append((other, rows[:of_other]))
        found = compare_served(
            join(*parts),
            join((known, order[len(taken) :])),
            split="the rest",
            schema=trained.schema,
            train=trained.train,
            seed=trial,
        )
        yield bool(found)


def divide(data: Path, target: Path) -> tuple[list[bytes], list[bytes]]:
    """Copy half of the images of all labels but the last into `target`.

    Returns:
        The other half, and the images of the last label.
    """
    of_labels: dict[str, list[Path]] = {}
    for path in sorted(data.rglob("*.*")):
        of_labels.setdefault(path.parent.name, []).append(path)
    *known, last = sorted(of_labels)
    for label in known:
        (target / label).mkdir(parents=True)
        for path in of_labels[label][::2]:
            shutil.copyfile(path, target / label / f"{path.parent.parent.name}-{path.name}")
    rest = [path.read_bytes() for label in known for path in of_labels[label][1::2]]
    return rest, [path.read_bytes() for path in of_labels[last]]


def measure(arguments: argparse.Namespace) -> None:
    """Train, then print how many windows of each kind raise an alarm."""
    import_quietly()
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        data = Path(arguments.data or f"{work}/digits").resolve()
        if not arguments.data:
            write_digits(str(data))
        files, new = divide(data, Path(work) / "known")
        words = [f"--{option}" for option in (*arguments.option, "evaluation.min_accuracy=0")]
        run_pipeline(["--data", f"{work}/known", "--output", f"{work}/out", *words])
        _measure(arguments, f"{work}/out", files, new)


def _measure(
    arguments: argparse.Namespace, output: str, files: list[bytes], new: list[bytes]
) -> None:
    newest = find_newest(os.path.join(output, "pushed"))
    if newest is None:
        raise DataError("The run pushed no model: look at its options.")
    version = os.path.basename(newest)
    trained = Trained.of(output, version)
    served = Served(output, version, trained.judged.labels)
    side, known = find_side(output, version), served.describe(files)
    kinds: list[tuple[str, Images | None, float]] = [("unchanged", None, 0.0)]
    for name, change in (("blurred", lambda image: blur(image, side)), ("dark", darken)):
        changed = served.describe([apply(change, file) for file in files])
        kinds += [(f"all {name}", changed, 1.0), (f"20% {name}", changed, 0.2)]
    kinds.append(("20% of a new class", served.describe(new), 0.2))
    table = Figures(f"Windows of {arguments.window} images", ("", "windows", "alarms"))
    figures: dict[str, Any] = {}
    progress = Progress(len(kinds))
    for name, other, share in kinds:
        trials = arguments.repeats if other else arguments.unchanged
        alarms = sum(
            _try(trained, known, other, window=arguments.window, share=share, trials=trials)
        )
        table.add(name, f"{trials:,}", f"{alarms:,}")
        figures[name] = {"windows": trials, "alarms": alarms}
        progress.report(f"{name}: {alarms} of {trials}")
    table.show()
    write_results(_MODULE, [table], figures, arguments.json)


def find_side(output: str, version: str) -> int:
    """Return the side of the images that a version sees, pixels."""
    from pipeline_def.local.pushed_model import find_run

    run = find_run(output, version)
    return int(run.record.configuration["transform"]["size"]) if run else 32


def main() -> int:
    """Measure what the command line asks for."""
    parser = _parser()
    arguments = parser.parse_args()
    return options.run(parser, lambda: measure(arguments))


if __name__ == "__main__":
    sys.exit(main())
