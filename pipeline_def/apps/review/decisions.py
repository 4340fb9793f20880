"""Keeps the decisions in the corrections file, which people and other programs may edit meanwhile.

The file is the only memory: every method reads it again if it has changed.
"""

import hashlib
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from components.contract.artifact_files import on_disk
from components.contract.errors import StorageError
from components.contract.image_tables import Suspect
from components.host.lock import locked
from components.ingest.source.corrections import Correction, parse_corrections, write_corrections
from components.records.shard_files import read_index
from components.storage.folder import is_file, read_bytes


class Decisions:
    """The decisions in a corrections file. It is thread-safe."""

    def __init__(self, path: str, digests: Collection[str]) -> None:
        """Open the file at a path or URL, which need not exist.

        Args:
            path: CSV file.
            digests: images that are reviewed; other rows of the file are kept as they are.

        Raises:
            UserError: the file cannot be read, or is not a valid corrections file.
        """
        self.path, self._digests = path, frozenset(digests)
        self._lock = threading.Lock()
        self._rows: list[Correction] = []
        self._version = ""
        self._decided: list[tuple[Correction, Correction | None]] = []
        self.read()

    def read(self) -> tuple[str, dict[str, Correction]]:
        """Return the version of the file, and the decision on each reviewed image that has one.

        Raises:
            UserError: the file cannot be read.
        """
        with self._lock:
            self._reread()
            return self._version, {r.sha256: r for r in self._rows if r.sha256 in self._digests}

    def decide(self, correction: Correction) -> tuple[str, str, Correction]:
        """Replace the decision on an image; on return it is on disk.

        Returns:
            The versions of the file before and after, and the decision as it is in the file.

        Raises:
            UserError: the file cannot be read or written; nothing is changed.
        """
        with self._lock, self._locked():
            before, earlier = self._reread(), self._find(correction.sha256)
            correction = correction.after(earlier)
            self._write(correction.sha256, correction)
            # Text that is not valid Unicode is escaped in the file.
            stored = self._find(correction.sha256) or correction
            self._decided.append((stored, earlier))
            return before, self._version, stored

    def undo(self, digest: str | None) -> str | None:
        """Restore the decision before the last one, on one image or on any.

        Without a decision since the start the newest one in the file is removed.

        Returns:
            The digest of the image, or None if there is nothing to undo.

        Raises:
            UserError: the file cannot be read or written; nothing is changed.
        """
        with self._lock, self._locked():
            self._reread()
            rows = {row.sha256: row for row in self._rows if digest in (None, row.sha256)}
            # What another person has replaced since is not ours to undo.
            ours = [pair for pair in self._decided if rows.get(pair[0].sha256) == pair[0]]
            if ours:
                correction, earlier = ours[-1]
            else:
                reviewed = [row for row in rows.values() if row.sha256 in self._digests]
                if not reviewed:
                    return None
                correction, earlier = max(reviewed, key=lambda row: row.when), None
            self._write(correction.sha256, earlier)
            self._decided = [pair for pair in self._decided if pair[0] is not correction]
            return correction.sha256

    def _find(self, digest: str) -> Correction | None:
        return next((row for row in self._rows if row.sha256 == digest), None)

    def _reread(self) -> str:
        # What exists but is not a file, such as a folder, cannot be read.
        exists = os.path.exists if on_disk(self.path) else is_file
        data = read_bytes(self.path) if exists(self.path) else b""
        version = hashlib.sha256(data).hexdigest()
        if version != self._version:
            self._rows = parse_corrections(data, self.path) if data else []
            self._version = version
        return version

    def _write(self, digest: str, correction: Correction | None) -> None:
        others = [row for row in self._rows if row.sha256 != digest]
        write_corrections(self.path, [*others, *([correction] if correction else [])])
        self._reread()

    def _locked(self) -> AbstractContextManager[None]:
        """Keep another review of the same file from writing at the same time."""
        if not on_disk(self.path):
            return nullcontext()
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise StorageError(f"Cannot write {self.path}: {error.strerror}.") from error
        lock = f"{folder}/.{os.path.basename(self.path)}.lock"
        # The other holder needs milliseconds.
        return locked(lock, self.path, say=lambda _: None)


@dataclass(frozen=True)
class ReviewedImage:
    """An image with all reasons to look at it."""

    sha256: str
    path: str
    split: str
    label: str
    proposed: str
    reasons: tuple[tuple[str, float], ...]
    """Each with its score, 0 to 1."""
    neighbors: tuple[str, ...]
    """Paths."""

    def explain(self, note: str = "") -> str:
        """Return a person's note and the reasons with their scores, for the column `why`."""
        reasons = "; ".join(f"{reason} {score:.2f}" for reason, score in self.reasons)
        return f"{note} ({reasons})" if note else reasons


def gather_images(suspects: Iterable[Suspect]) -> list[ReviewedImage]:
    """Join the suspects of each image: wrong labels first, each kind with its highest scores first.

    `suspects` are one per image and reason.
    """
    by_digest: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        by_digest.setdefault(suspect.sha256, []).append(suspect)
    images = [_join(rows) for rows in by_digest.values()]
    images.sort(
        key=lambda image: (image.reasons[0][0] != "label", -image.reasons[0][1], image.path)
    )
    return images


def _join(rows: Sequence[Suspect]) -> ReviewedImage:
    rows = sorted(rows, key=lambda row: (row.reason != "label", -row.score))
    first = rows[0]
    return ReviewedImage(
        sha256=first.sha256,
        path=first.path,
        split=first.split,
        label=first.label,
        proposed=next((row.proposed for row in rows if row.proposed), ""),
        reasons=tuple({row.reason: row.score for row in rows}.items()),
        neighbors=tuple(dict.fromkeys(path for row in rows for path in row.neighbors)),
    )


def list_labels(examples: str, images: Iterable[ReviewedImage]) -> list[str]:
    """Return all labels of an Examples artifact, or those of the images where that is gone."""
    known = {name for image in images for name in (image.label, image.proposed)}
    try:
        index: dict[str, Any] = read_index(examples).get("labels", {})
    except (OSError, StorageError, ValueError):
        index = {}
    return sorted({*known, *(label for counts in index.values() for label in counts)} - {""})
