"""Pictures of suspects, and of the training images that suspects and mistakes resemble."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from components.contract.artifact_files import on_disk
from components.contract.example import spell_path
from components.contract.image_tables import Suspect
from components.images.thumbnails import Thumbnail, make_thumbnail
from components.report.pictures.predicted_images import read_images
from components.report.pictures.source_pictures import read_pictures
from components.report.shown import PredictedImage, SuspectFacts
from components.report.suspects.gathering import FoundSuspects
from components.report.suspects.odd_images import MOST
from components.report.suspects.similar import Columns, draw_map, find_rows, find_similar

_SIDE, _SMALL_SIDE = 144, 64


def show_suspects(
    found: FoundSuspects,
    mistakes: Sequence[PredictedImage],
    *,
    examples_uri: str,
    root: str,
    limit: int,
) -> SuspectFacts:
    """Show the first suspects of each kind, and what resembles them and the mistakes.

    Pictures beyond `limit` bytes are left out.
    """
    columns, features = found.columns, found.features
    chosen = _choose(found.suspects)
    names = {mistake.filename: spell_path(mistake.filename) for mistake in mistakes}
    near = {} if features is None else find_similar([*names.values()], columns, features)
    wanted = dict.fromkeys(itertools.chain.from_iterable(near.values()), _SMALL_SIDE)
    wanted |= {path: _SMALL_SIDE for suspect in chosen for path in suspect.neighbors}
    wanted |= {suspect.path: _SIDE for suspect in chosen}
    labels, pictures = _read(wanted, columns, examples_uri, root)
    drawn = None
    if features is not None:
        drawn = draw_map(columns, features, {suspect.path for suspect in chosen})
    return SuspectFacts(
        rows=found.suspects,
        shown=tuple(chosen),
        found=found.found,
        errors=found.errors,
        similar={name: near[path] for name, path in names.items() if path in near},
        labels=labels,
        pictures=_keep_within(pictures, limit),
        image_map=drawn,
    )


def _choose(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspects with the highest scores: wrong labels, near duplicates, odd images."""
    groups: dict[str, list[Suspect]] = defaultdict(list)
    for suspect in sorted(suspects, key=lambda suspect: (-suspect.score, suspect.path)):
        kind = suspect.reason if suspect.reason in ("label", "near_duplicate") else ""
        groups[kind].append(suspect)
    return [suspect for group in groups.values() for suspect in group[:MOST]]


def _read(
    wanted: Mapping[str, int], columns: Columns, examples_uri: str, root: str
) -> tuple[dict[str, str], dict[str, Thumbnail | None]]:
    """Return the labels of the paths `wanted`, path → side, and their pictures in its order."""
    rows = find_rows(wanted, columns["path"])
    paths, labels, splits = (columns[name][rows].tolist() for name in ("path", "label", "split"))
    label_of = dict(zip(paths, labels, strict=True))
    if not on_disk(examples_uri):
        # Finding a few records would take a download of all.
        return label_of, dict(zip(wanted, read_pictures(root, [*wanted]), strict=True))
    of_split: dict[str, set[str]] = defaultdict(set)
    for path, split in zip(paths, splits, strict=True):
        of_split[split].add(path)
    thumbnails = {
        name: make_thumbnail(encoded, side=wanted[name])
        for split, names in of_split.items()
        for name, encoded in read_images(examples_uri, split, names)
    }
    return label_of, {path: thumbnails.get(path) for path in wanted}


def _keep_within(
    pictures: Mapping[str, Thumbnail | None], limit: int
) -> dict[str, Thumbnail | None]:
    """Return the last pictures, those of suspects, that have at most `limit` bytes in total."""
    kept = {}
    for path, picture in reversed([*pictures.items()]):
        limit -= len(picture.jpeg) if picture else 0
        if limit >= 0:
            kept[path] = picture
    return kept
