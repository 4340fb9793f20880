"""`local_runner.py review DIR`: proposes labels for images that nobody has labeled.

One in five images, drawn at random by the digest of its path, belongs to the control group. Only
this group tells how often the proposals are right: the other images are chosen because the model
is especially uncertain or certain.
"""

import collections
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console

from components.contract.errors import DataError
from components.ingest.source.corrections import Correction, read_corrections
from components.predict.files import count_files, find_sources
from components.predict.flow import Tally, predict
from components.predict.model import Ranking, RankingModel, import_quietly
from components.report.pictures.source_pictures import read_files
from components.storage.folder import is_file, open_folder
from pipeline_def.config.config import Config
from pipeline_def.local.display.rows import print_whole
from pipeline_def.local.output.folder import MODELS, open_output
from pipeline_def.local.predict_command import with_progress
from pipeline_def.local.preparation import make_absolute
from pipeline_def.local.pushed_model import find_labels, find_model, find_options
from pipeline_def.local.review.options import ReviewOptions
from pipeline_def.local.review.suspect_list import ReviewedImage

CONTROL, UNCERTAIN, TYPICAL = "control", "uncertain", "typical"

_MOST = 1_000
"""Undecided images of one session."""

_CONTROL_FRACTION = 5
_BATCH = 8


class Predicted(NamedTuple):
    """An image with its most probable labels."""

    path: str
    ranking: Ranking

    @property
    def margin(self) -> float:
        """Difference between the two highest probabilities."""
        first, *others = (probability for _, probability in self.ranking)
        return first - others[0] if others else first


def propose(folder: str, options: ReviewOptions) -> tuple[list[ReviewedImage], list[str]]:
    """Predict all images of a folder.

    Returns:
        The images to review, and all labels of the model. Images that were decided come last.

    Raises:
        UserError: the folder has no images, or there is no model.
    """
    config, _ = open_output(make_absolute(Config(output=options.output)), MODELS)
    console = Console(highlight=False)
    sources = find_sources([folder])
    model = find_model(config.output, None)
    print_whole(console, "Model", model)
    import_quietly()
    tally = Tally(count_files(sources))
    served = RankingModel(model, top=2)
    outcomes = predict(sources, served.predict, config.predict, find_options(config, model))
    shown = with_progress(console, tally.count(outcomes), total=tally.total)
    predicted = [
        Predicted(os.path.relpath(one.file, folder), one.ranking) for one in shown if one.ranking
    ]
    found = [one for one in predicted if _is_utf_8(one.path)]
    print_whole(console, "Files", str(tally))
    if left_out := len(predicted) - len(found):
        text = f"{left_out:,} files, as a manifest cannot name them: their names are not UTF-8"
        print_whole(console, "Left out", text)
    if not found:
        raise DataError(f"The model can predict no file in {folder}: name a folder of images.")
    file = options.corrections_file
    decided = {row.path: row.sha256 for row in read_corrections(file)} if is_file(file) else {}
    _, labels = find_labels(config.output)
    return _describe(folder, found, decided), sorted(labels | tally.labels.keys())


def _is_utf_8(path: str) -> bool:
    return path == path.encode(errors="replace").decode()


def _describe(
    folder: str, found: Sequence[Predicted], decided: Mapping[str, str]
) -> list[ReviewedImage]:
    """Return the images to review, then those that are decided; unreadable files are left out."""
    known = _digest(folder, [one.path for one in found if one.path in decided])
    done = {path for path, digest in known.items() if decided[path] == digest}
    chosen = [*choose(one for one in found if one.path not in done)]
    known |= _digest(folder, [one.path for _, one in chosen])
    again = [(CONTROL if is_control(one.path) else TYPICAL, one) for one in found]
    rows = [*chosen, *((kind, one) for kind, one in again if one.path in done)]
    images: dict[str, ReviewedImage] = {}
    for kind, one in rows:
        label, probability = one.ranking[0]
        reasons = ((kind, probability),)
        if digest := known.get(one.path):
            image = ReviewedImage(digest, one.path, "", "", label, reasons, ())
            images.setdefault(digest, image)
    return [*images.values()]


def _digest(folder: str, paths: Sequence[str]) -> dict[str, str]:
    fs, root = open_folder(folder)
    found = {}
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        for path, data in zip(batch, read_files(fs, root, batch), strict=True):
            if data is not None:
                found[path] = hashlib.sha256(data).hexdigest()
    return found


def is_control(path: str) -> bool:
    """Return whether an image belongs to the control group, whatever other images there are."""
    return _draw(path)[0] % _CONTROL_FRACTION == 0


def _draw(path: str) -> bytes:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()


def choose(images: Iterable[Predicted], most: int = _MOST) -> Iterator[tuple[str, Predicted]]:
    """Yield up to `most` images: uncertain and typical ones by turns, every fifth from the control.

    Uncertain ones have the smallest margin. Typical ones have the highest probability of each label
    by turns.
    """
    rows = sorted(images, key=lambda one: (_draw(one.path), one.path))
    others = [one for one in rows if not is_control(one.path)]
    queues = {
        UNCERTAIN: iter(sorted(others, key=lambda one: one.margin)),
        TYPICAL: iter(_take_turns(others)),
        CONTROL: iter([one for one in rows if is_control(one.path)]),
    }
    turns = itertools.cycle([UNCERTAIN, TYPICAL, UNCERTAIN, TYPICAL, CONTROL])
    seen: set[str] = set()
    while len(seen) < min(most, len(rows)):
        kind = next(turns)
        one = next((one for one in queues[kind] if one.path not in seen), None)
        if one:
            seen.add(one.path)
            yield kind, one


def _take_turns(images: Sequence[Predicted]) -> list[Predicted]:
    ranks: collections.Counter[str] = collections.Counter()
    ordered = []
    for one in sorted(images, key=lambda one: -one.ranking[0][1]):
        label = one.ranking[0][0]
        ordered.append((ranks[label], one))
        ranks[label] += 1
    return [one for _, one in sorted(ordered, key=lambda pair: pair[0])]


def describe_control(
    images: Iterable[ReviewedImage], decided: Mapping[str, Correction]
) -> Iterator[str]:
    """Yield how often the proposals were right in the control group, if any were decided."""
    # Importing SciPy takes a while.
    from components.contract.confidence import proportion_interval

    control = [image for image in images if image.reasons[0][0] == CONTROL]
    rows = [(image, decided[image.sha256]) for image in control if image.sha256 in decided]
    labeled = [row.to_label == image.proposed for image, row in rows if row.action == "relabel"]
    if labeled:
        right, total = sum(labeled), len(labeled)
        interval = proportion_interval(right, total)
        yield (
            f"{right:,} of {total:,} proposals in the control group were right: "
            f"{right / total:.0%} (95% interval {interval.low:.0%} to {interval.high:.0%})"
        )
    if others := len(rows) - len(labeled):
        yield f"{others:,} of the control group got no label"
