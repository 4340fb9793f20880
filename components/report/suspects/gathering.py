"""Gathers the suspects of a run: wrong labels and odd images, with the images that explain them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.contract.artifact_files import open_file
from components.contract.example import CORRECTIONS_FILE, LABEL_IS_ALREADY
from components.contract.image_tables import Suspect, Texts, open_images, read_embeddings
from components.contract.properties import PropertiesLike
from components.host.machine import trim_memory
from components.report.shown import LabelErrors
from components.report.suspects.copies import Copy, find_copies, list_suspects, read_copies
from components.report.suspects.labels import find_wrong_labels
from components.report.suspects.odd_images import find_odd
from components.report.suspects.similar import Columns, Features, add_neighbors

_DISTINCT = ("sha256", "path")


@dataclass(frozen=True)
class FoundSuspects:
    """Suspects, and the table of images that they were found in."""

    suspects: tuple[Suspect, ...]
    found: Mapping[str, int]
    """Reason → images, including those that are not listed."""
    errors: LabelErrors | None
    columns: Columns
    features: Features | None
    """None if the trainer kept no embeddings."""
    copies: Sequence[list[Copy]]


def find_suspects(given: Mapping[str, PropertiesLike], *, pretrained: bool) -> FoundSuspects | None:
    """Look for suspects among the images of all splits, except those that a person has judged.

    Return None if the trainer described no images; only features of a `pretrained` network tell
    copies.
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
    wrong, errors = find_wrong_labels(columns, features)
    odd = find_odd(columns, features)
    suspects, copies = [*wrong, *odd.suspects], read_copies(given["rejects"].uri, columns)
    if features is not None:
        suspects = add_neighbors(suspects, columns, features)
        copies += find_copies(columns, features) if pretrained else []
    twins = list_suspects(copies, decided)
    suspects += twins
    counts: dict[str, int] = {"label": len(wrong)} if wrong else {}
    counts.update(odd.found)
    if twins:
        counts["near_duplicate"] = len(twins)
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
