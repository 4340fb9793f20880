"""The listing of a folder: its images with their labels and splits, and the file that keeps it.

The listing travels in a file. Buckets change all the time, so one listing decides both whether a
cached result is valid and what is read; files that changed since are rejected one by one.
"""

import collections
import contextlib
import functools
import gzip
import hashlib
import io
import itertools
import json
import posixpath
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from typing import IO, Any, NamedTuple, TypeVar

from components.contract.errors import DataError, StorageError
from components.contract.example import SPAN, TRAIN
from components.contract.printable import name_some, quote
from components.host.machine import pause_collection
from components.ingest.source.corrections import Correction, Corrections
from components.ingest.source.folder_layout import explain_one_class
from components.storage.folder import (
    explaining_errors,
    open_folder,
    read_bytes,
    reason_of,
    replace_file,
)
from components.storage.row_table import keep

_SUFFIX = ".jsonl.gz"
_Row = TypeVar("_Row")
_NO_COLUMNS: dict[str, str | int | float] = {}
_NAME = re.compile(r"[0-9a-f]{64}(-[0-9a-f]{64})?" + re.escape(_SUFFIX))
_MOST_KEPT = 10
# Rows of a line in the file of a listing.
_BLOCK = 256
# Of the names in a warning, and of the characters of an escaped name.
_MOST_ALIKE, _MOST_ESCAPED = 5, 80


class ImageFile(NamedTuple):
    """A listed file that may be an image; it has not been read."""

    path: str
    """Path relative to the folder, with "/" between its parts."""
    label: str
    split: str | None
    """None if a hash of the content, or of the group, decides."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: times of a local file, or the store's own tag."""
    group: str | None = None
    """Files of a group, such as the frames of a film, fall into the same split."""
    checksum: str = ""
    """Kind, such as "md5:", and value; empty if there is none."""
    columns: Mapping[str, str | int | float] = {}
    """Name → value of the manifest's further columns; a missing value has no entry."""

    def __hash__(self) -> int:
        """Hash the path: a tuple would also hash the columns, which it cannot."""
        return hash(self.path)

    @property
    def shard(self) -> str | None:
        """Path of the shard whose record this is; None for a file."""
        # The version of a file is a number or a tag; that of a record is JSON.
        return self.path.rpartition("#")[0] if self.version.startswith("[") else None


def place_in_listing(file: ImageFile) -> tuple[str, int]:
    """Return the sort key of a listing: paths, and the records of a shard as they lie in it."""
    if not file.version.startswith("["):
        return file.path, 0
    shard, _, number = file.path.rpartition("#")
    return shard, int(number)


class Tally(NamedTuple):
    """What the files of a listing add up to."""

    labels: Mapping[str | None, Mapping[str, int]]
    """Split → label → number of files."""
    size: int
    """Bytes."""
    spans: Set[Any]
    has_groups: bool
    has_columns: bool


@dataclass(frozen=True)
class Listing:
    """All files below a folder: the candidates in path order, and the skipped ones."""

    root: str
    """The folder as given."""
    files: Sequence[ImageFile]
    """Many of them stay on disk."""
    skipped: Mapping[str, str]
    """Path → why it is not used, of all other files and records."""
    layout: str = "label"
    """What the top folders are, "label" or "split"; "manifest" if one names labels and splits; else
    the format of the shards."""
    notes: tuple[str, ...] = ()
    """Warnings about splits, skipped folders and options."""
    taken: str = ""
    """Features of the shards that are the image, the label and so on."""
    fractions: Mapping[str, float] = field(default_factory=dict)
    """Split → its fraction of the files without a given split."""
    corrections: Corrections = field(default_factory=Corrections)
    span: int | None = None
    """The newest span, if the folder has spans."""
    version: int | None = None
    """The version of that span."""

    @functools.cached_property
    def tally(self) -> Tally:
        """Add up all files, once: many of them are read from disk."""
        labels: dict[str | None, collections.Counter[str]] = {}
        size, spans, has_groups, has_columns = 0, set[Any](), False, False
        for _, label, split, bytes_, _, group, _, columns in self.files:
            if (of_split := labels.get(split)) is None:
                of_split = labels[split] = collections.Counter()
            of_split[label] += 1
            size += bytes_
            if group is not None:
                has_groups = True
            if columns:
                has_columns = True
                if SPAN in columns:
                    spans.add(columns[SPAN])
        return Tally(labels, size, spans, has_groups, has_columns)

    def labels_per_split(self) -> dict[str | None, collections.Counter[str]]:
        """Count the files of each label in each split."""
        return {split: collections.Counter(counts) for split, counts in self.tally.labels.items()}

    def labels(self) -> set[str]:
        """Return all labels."""
        return set().union(*self.tally.labels.values())

    def columns(self) -> Iterator[Mapping[str, str | int | float]]:
        """Yield the columns of each file; nothing if no file has any."""
        return (file.columns for file in self.files if self.tally.has_columns)

    def fingerprint(self) -> str:
        """Digest the relative paths, labels, splits, sizes, contents and columns of all files.

        The checksum stands for the content, or else the version. The digest of the corrections
        follows, if there are any.

        TFX's own fingerprint, the number of files, their bytes and the newest modification time,
        stays the same when an image moves to another label folder.
        """
        digest = hashlib.sha256()
        for block in _divide(self.files):
            # The text of a tuple, written out in half the time.
            lines = [
                f"({path!r}, {label!r}, {split!r}, {group!r}, {size!r}, {checksum or version!r})"
                f"{sorted(columns.items()) if columns else ''}\n"
                for path, label, split, size, version, group, checksum, columns in block
            ]
            digest.update("".join(lines).encode("utf-8", "surrogateescape"))
        corrected = f",corrections:{self.corrections.digest}" if self.corrections.path else ""
        return f"files:{len(self.files)},sha256:{digest.hexdigest()}{corrected}"

    def facts(self) -> dict[str, Any]:
        """Return the properties that TFX's driver of FileBasedExampleGen looks up."""
        fingerprint = self.fingerprint()
        return {"span": self.span, "version": self.version, "input_fingerprint": fingerprint}


def find_look_alikes(listing: Listing) -> list[str]:
    """Return a warning for labels, splits and groups that are most likely meant to be one."""
    warnings = []
    # Perhaps as many as there are images.
    groups = (
        {file.group for file in listing.files if file.group} if listing.tally.has_groups else ()
    )
    for kind, names in (
        ("labels", listing.labels()),
        ("splits", {split for split in listing.tally.labels if split}),
        ("groups", groups),
    ):
        alike: dict[str, list[str]] = {}
        for name in sorted(names):
            key = unicodedata.normalize("NFKC", name).casefold()
            alike.setdefault("".join(key.split()), []).append(name)
        for similar in (names for names in alike.values() if len(names) > 1):
            # Two Unicode forms of a name look the same unless they are escaped.
            escaped = [ascii(name[:_MOST_ESCAPED]) for name in similar]
            warnings.append(
                f"{kind} that differ only in case, spaces or Unicode form: "
                f"{name_some(escaped, _MOST_ALIKE)}"
            )
    return warnings


def check_labels(listing: Listing) -> None:
    """Raise `DataError` unless there are two labels, and each split has images of every label."""
    counts = listing.labels_per_split()
    labels = sorted(listing.labels())
    if len(labels) < 2:
        paths = () if listing.layout == "manifest" else (file.path for file in listing.files)
        raise DataError(explain_one_class(listing.root, labels[0], paths, listing.skipped))
    for label in labels:
        # The vocabulary is a text file with one label per line; surrogates are invalid UTF-8.
        if any(character in "\n\r" or "\ud800" <= character <= "\udfff" for character in label):
            raise DataError(
                f"The label {quote(label)} is not one line of UTF-8 text: rename its folder, or "
                f"fix the manifest."
            )
    hashed = counts.pop(None, ())
    # Train may have no files of its own: its images may all come from the hashed ones.
    of_train: collections.Counter[str] = collections.Counter()
    for split, of_split in ({TRAIN: of_train} | counts).items():
        present = {*of_split, *(hashed if split in listing.fractions else ())}
        if missing := [label for label in labels if label not in present]:
            others = f" and {len(missing) - 1} more" if missing[1:] else ""
            alike = "".join(f" ({text})" for text in find_look_alikes(listing)[:1])
            raise DataError(
                f"Split {quote(split)} of {listing.root} has no images of class "
                f"{quote(missing[0])}{others}: add some, or remove the class from every split"
                f"{alike}."
            )


def write_listing(listing: Listing, folder: str) -> str:
    """Write a listing to `folder`, named by its fingerprint; return the path of the file.

    Keeps the ten newest listings, and all other files.

    Raises:
        StorageError: the listing cannot be written.
    """
    facts = listing.facts()
    parts = facts["input_fingerprint"].split(",")
    path = (
        f"{folder.rstrip('/')}/{'-'.join(part.rpartition(':')[2] for part in parts[1:])}{_SUFFIX}"
    )
    content = io.BytesIO()
    _encode(listing, facts, content)
    replace_file(path, content.getvalue())
    fs, root = open_folder(folder)
    with explaining_errors("list", folder):
        names = [entry["name"] for entry in fs.ls(root, detail=True, refresh=True)]
        listings = [name for name in names if _NAME.fullmatch(posixpath.basename(name))]
        for name in sorted(listings, key=fs.modified, reverse=True)[_MOST_KEPT:]:
            fs.rm_file(name)
    return path


def _encode(listing: Listing, facts: Mapping[str, Any], target: IO[bytes]) -> None:
    head = {field.name: getattr(listing, field.name) for field in fields(listing)}
    head |= {"files": len(listing.files), "skipped": len(listing.skipped)}
    head["corrections"] = asdict(listing.corrections)
    # Block by block, as the text takes ten times the memory of the file.
    with (
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=target, mtime=0) as file,
        io.TextIOWrapper(file, "ascii") as text,
    ):
        blocks = itertools.chain(_divide(listing.files), _divide(listing.skipped.items()))
        for line in itertools.chain([facts, head], blocks):
            # Names that are not valid UTF-8 contain surrogates, which JSON escapes.
            text.write(json.dumps(line, check_circular=False) + "\n")


def _divide(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows in blocks, which are encoded in half the time of single rows."""
    remaining = iter(rows)
    return iter(lambda: list(itertools.islice(remaining, _BLOCK)), [])


def read_facts(path: str) -> dict[str, Any]:
    """Read the `Listing.facts` of a file that `write_listing` has written, but not its files.

    Raises:
        StorageError: the file is missing or incomplete.
    """
    with _reading(path) as lines:
        facts: dict[str, Any] = json.loads(next(lines))
        return facts


def read_listing(path: str) -> Listing:
    """Read what `write_listing` has written.

    Raises:
        StorageError: the file is missing or incomplete.
    """
    with _reading(path) as lines:
        _, head = json.loads(next(lines)), json.loads(next(lines))
        rows = itertools.chain.from_iterable(json.loads(str(line, "ascii")) for line in lines)
        files = itertools.islice(rows, head["files"])
        head["files"] = keep((_share(ImageFile._make(row)) for row in files), ImageFile)
        head["skipped"] = dict(rows)
        head["notes"] = tuple(head["notes"])
        corrections = head["corrections"]
        corrections["rows"] = tuple(Correction(**row) for row in corrections["rows"])
        head["corrections"] = Corrections(**corrections)
        return Listing(**head)


def _share(file: ImageFile) -> ImageFile:
    """Let files of a class share the text of the label, and files without columns the mapping."""
    return file._replace(label=sys.intern(file.label), columns=file.columns or _NO_COLUMNS)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[Iterator[bytes]]:
    """Open the lines of a listing; turn any error into a `StorageError`."""
    try:
        content = io.BytesIO(read_bytes(path))
        with gzip.GzipFile("", "rb", fileobj=content) as file, pause_collection():
            yield file
    except Exception as error:  # Each file system has errors of its own.
        raise StorageError(
            f"Cannot read the listing {path} ({reason_of(error)}): run again to recreate it."
        ) from error
