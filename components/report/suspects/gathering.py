"""Gathers the suspects of a run, and pictures of them and of the images that explain them."""

import itertools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.artifact_files import on_disk, open_file
from components.contract.example import CORRECTIONS_FILE, LABEL_IS_ALREADY, spell_path
from components.contract.image_tables import Suspect, Texts, open_images, read_embeddings
from components.contract.properties import PropertiesLike
from components.host.machine import trim_memory
from components.images.thumbnails import Thumbnail, make_thumbnail
from components.report.predicted_images import read_images
from components.report.shown import LabelErrors, PredictedImage, SuspectFacts
from components.report.source_pictures import read_pictures
from components.report.suspects.copies import Copy, find_copies, list_suspects, read_copies
from components.report.suspects.labels import find_wrong_labels
from components.report.suspects.odd_images import MOST, find_odd
from components.report.suspects.similar import (
    Columns,
    Features,
    add_neighbors,
    draw_map,
    find_rows,
    find_similar,
)

_DISTINCT = ("sha256", "path")
_SIDE, _SMALL_SIDE = 144, 64


@dataclass(frozen=True)
class FoundSuspects:
    """Suspects, and the table of images that they were found in."""

    suspects: tuple[Suspect, ...]
    counts: Mapping[str, int]
    """Reason → images, including those that are not listed."""
    errors: LabelErrors | None
    columns: Columns
    features: Features | None
    """None if the trainer kept no embeddings."""
    copies: Sequence[list[Copy]]


def find_suspects(
    given: Mapping[str, PropertiesLike], *, pretrained: bool, folds: Mapping[str, int]
) -> FoundSuspects | None:
    """Look for suspects among the images of all splits, except those that a person has judged.

    Return None if the trainer described no images; only features of a `pretrained` network tell
    copies. `folds` has the SHA-256 and the fold of each image if folds judge the model.
    """
    run = given["model_run"].uri
    images = open_images(run)
    if images is None:
        return None
    columns: dict[str, Any] = {
        # Equal labels share a text.
        name: Texts(images, name)
        if name in _DISTINCT
        else images.read([name])[name].to_pandas().to_numpy()
        for name in images.schema_arrow.names
    }
    features = read_embeddings(run)
    trim_memory()
    decided = read_decided(given["rejects"].uri)
    keys = columns["sha256"]
    columns["decided"] = np.fromiter((key in decided for key in keys), bool, len(keys))
    columns["fold"] = np.fromiter((folds.get(key, -1) for key in keys), np.int64, len(keys))
    wrong, errors = find_wrong_labels(columns, features)
    odd = find_odd(columns, features)
    suspects, copies = [*wrong, *odd.suspects], read_copies(given["rejects"].uri, columns)
    if features is not None:
        suspects = add_neighbors(suspects, columns, features)
        copies += find_copies(columns, features) if pretrained else []
    twins = list_suspects(copies, decided)
    suspects += twins
    counts = Counter[str](suspect.reason for suspect in (*wrong, *twins)) + Counter(odd.counts)
    return FoundSuspects(tuple(suspects), counts, errors, columns, features, copies)


def read_decided(rejects_uri: str) -> set[str]:
    """Return the digests of images that a person has kept or relabeled, also in the folder itself.

    Such images need no second look: they are no suspects.
    """
    try:
        with open_file(os.path.join(rejects_uri, CORRECTIONS_FILE)) as file:
            rows = [json.loads(line) for line in file]
    except FileNotFoundError:  # Ingest of earlier versions, or without corrections.
        return set()
    return {
        row["sha256"]
        for row in rows
        if row["result"] in ("kept", "relabeled") or row["reason"].startswith(LABEL_IS_ALREADY)
    }


def show_suspects(
    suspects: FoundSuspects,
    mistakes: Sequence[PredictedImage],
    *,
    examples_uri: str,
    root: str,
    limit: int,
) -> SuspectFacts:
    """Show the first suspects of each kind, and what resembles them and the mistakes.

    Pictures beyond `limit` bytes are left out.
    """
    columns, features = suspects.columns, suspects.features
    chosen = _choose(suspects.suspects)
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
        rows=suspects.suspects,
        shown=tuple(chosen),
        counts=suspects.counts,
        errors=suspects.errors,
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
