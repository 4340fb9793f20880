"""Label the files of a folder by their folders or a manifest."""

import collections
import dataclasses
import fnmatch
import glob
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from components.contract.errors import DataError
from components.contract.printable import quote_path
from components.ingest.config import IngestConfig
from components.ingest.source.folder_layout import (
    PICTURES,
    explain_no_labels,
    find_split_folders,
    note_odd_labels,
    note_unused_folders,
    split_of_name,
)
from components.ingest.source.folder_tree import FolderTree, exclude_option
from components.ingest.source.listing import ImageFile, Listing
from components.ingest.source.manifest import TYPELESS, Row, is_manifest, read_manifest
from components.ingest.source.values import is_unlabeled, keep_columns
from components.storage.folder_listing import (
    EXCLUDED,
    LINK_AGAIN,
    MISSING,
    Found,
    explain_ignored,
    explain_name,
)
from components.storage.row_table import keep

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Names of tables that label the images in their folder."""
NO_LABEL = "no label"
_UNLABELLED = "not inside a label folder"
# A picture `1_mask.png` beside `1.png`.
_MASK = re.compile(r"(.*[^/])[ _-]masks?([ _-]?\d+)?\.[^./]+")


class Exclusion:
    """Decides which paths `ingest.exclude` leaves out."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Exclude what matches a pattern, or is called like it, and all that is below it."""
        self.patterns = {pattern: _compile(pattern) for pattern in patterns}
        self._used: set[str] = set()

    def __call__(self, path: str) -> bool:
        """Return whether a path is left out."""
        matching = [pattern for pattern, known in self.patterns.items() if known.match(path)]
        self._used.update(matching)
        return bool(matching)

    def notes(self) -> list[str]:
        """Return a note on each pattern that has matched nothing so far."""
        unused = (pattern for pattern in self.patterns if pattern not in self._used)
        return [f"Nothing matches {pattern!r} of ingest.exclude." for pattern in unused]


def _compile(pattern: str) -> re.Pattern[str]:
    name = pattern.removeprefix("./").rstrip("/")
    # A * of fnmatch matches slashes, too.
    forms = (form + end for form in (name, glob.escape(name)) for end in ("", "/*"))
    return re.compile("|".join(map(fnmatch.translate, forms)))


def by_folder(folder: str, entries: Sequence[Found], config: IngestConfig) -> Listing:
    """Label files by their folders."""
    skipped: dict[str, str] = {}
    tree = _find_tree(folder, entries, skipped)
    splits = find_split_folders(tree, config.layout)
    _check_links(skipped, splits)
    labels: dict[str, set[str]] = {place: set() for place in splits or ("",)}
    files = keep(_label_files(entries, splits, skipped, labels), ImageFile)
    if not files:
        unlabelled = (path for path, reason in skipped.items() if reason == _UNLABELLED)
        loose = [path for path in unlabelled if "/" not in path]
        raise DataError(explain_no_labels(folder, loose, tree.others))
    notes = []
    for place in (place for place in splits if not labels[place]):
        count = sum(path.startswith(f"{place}/") for path in skipped)
        notes.append(f"{place}/ has no label folders, so its {count:,} files are skipped.")
    notes += note_odd_labels(tree, labels)
    notes += note_unused_folders(tree, labels, skipped)
    layout = "split" if splits else "label"
    return Listing(folder, files, skipped, layout, tuple(notes))


def _check_links(skipped: Mapping[str, str], splits: Mapping[str, str]) -> None:
    """Raise `DataError` if a label of a split is a link to a folder that is listed already."""
    for path, reason in skipped.items() if splits else ():
        if reason == LINK_AGAIN and path.rpartition("/")[0] in splits:
            raise DataError(
                f"{path} is {LINK_AGAIN}: give each label of a split a folder of its own, or "
                f"leave the link out with {exclude_option([path])}."
            )


def _label_files(
    entries: Iterable[Found],
    splits: Mapping[str, str],
    skipped: dict[str, str],
    labels: Mapping[str, set[str]],
) -> Iterator[ImageFile]:
    """Yield the files in label folders; add the other ones, and the labels of each split."""
    places = {place.partition("/")[0]: (place.split("/"), split) for place, split in splits.items()}
    # Without splits, the label folders are at the top.
    elsewhere: tuple[list[str], str | None] = (["/"] if splits else [], None)
    before, label, split, unused = None, "", None, _UNLABELLED
    for path, _, size, version, checksum in entries:
        if path in skipped:
            continue
        if (place := path.rpartition("/")[0]) != before:
            before, parts = place, path.split("/")
            above, split = places.get(parts[0], elsewhere)
            depth = len(above)
            is_inside = len(parts) >= depth + 2 and parts[:depth] == above
            # All files of a label share its text.
            label = sys.intern(parts[depth]) if is_inside else ""
            unused = NO_LABEL if is_unlabeled(label) else _UNLABELLED
            if label:
                labels["/".join(above)].add(label)
        if label and unused != NO_LABEL:
            yield ImageFile(path, label, split, size, version, None, checksum)
        else:
            skipped[path] = unused


def _find_tree(folder: str, entries: Iterable[Found], skipped: dict[str, str]) -> FolderTree:
    """Return the folders with images; add the reason for each file that is none."""
    named, unnamed, others = set[str](), collections.Counter[str](), list[str]()
    masks: dict[str, str] = {}
    before, is_read, count = None, True, 0
    for entry in entries:
        path = entry.path
        if (place := path.rpartition("/")[0]) != before:
            before = place
            is_read = bool(place) and not explain_ignored(Found(place, "", 0, "", ""))
        # Most are pictures, which need no closer look.
        is_picture = path.endswith(PICTURES) or path.lower().endswith(PICTURES)
        if is_picture and is_read and not entry.problem and "/." not in path:
            named.add(place)
            count += 1
            if "mask" in path and (match := _MASK.fullmatch(path)):
                masks[path] = match[1]
        elif reason := explain_ignored(entry):
            skipped[path] = reason
        elif place and (reason := explain_name(path)):
            skipped[path] = reason
            others.append(path)
        elif place:
            unnamed[place] += 1
        else:
            others.append(path)
    if masks:
        stems = {entry.path.rpartition(".")[0] for entry in entries}
        skipped |= {
            path: "a mask of another image" for path, stem in masks.items() if stem in stems
        }
    if not named or unnamed.total() > count:
        return FolderTree(folder, {*named, *unnamed}, set(), others)
    return FolderTree(folder, named, unnamed.keys() - named, others)


def by_manifest(
    folder: str, entries: Sequence[Found], config: IngestConfig, is_excluded: Exclusion
) -> Listing:
    """Label files by the manifest, hidden ones too; ingest rejects those that do not exist."""
    manifest = config.manifest or ""
    rows = read_manifest(manifest, config.columns or (), splits=config.splits or (), folder=folder)
    return _by_rows(folder, entries, rows, manifest, is_excluded)


def by_metadata(
    folder: str, entries: Sequence[Found], config: IngestConfig, is_excluded: Exclusion
) -> Listing | None:
    """Label files by `metadata.csv` and the like beside them, as Hugging Face's `imagefolder` does.

    Return None if there is no such table with labels.
    """
    rows: dict[str, Row] = {}
    tables = []
    for entry in entries if config.layout == "auto" else ():
        if not entry.path.endswith(METADATA) or explain_ignored(entry):
            continue
        place, slash, name = entry.path.rpartition("/")
        path = f"{folder.rstrip('/')}/{entry.path}"
        if name not in METADATA or not is_manifest(path):
            continue
        tables.append(path)
        for inner, row in read_manifest(path, splits=config.splits or ()).items():
            file = f"{place}{slash}{inner}"
            split = row.split or (split_of_name(file.partition("/")[0]) if "/" in file else None)
            row = row._replace(split=split)
            if rows.setdefault(file, row) != row:
                raise DataError(f"{path} and {tables[0]} contradict each other about {file}.")
    if not tables:
        return None
    labelled = _by_rows(folder, entries, rows, tables[0], is_excluded)
    more = f" and {len(tables) - 1:,} more" if tables[1:] else ""
    note = f"Labels are from {tables[0]}{more}; ingest.layout label takes them from folders."
    return dataclasses.replace(labelled, notes=(note, *labelled.notes))


def _by_rows(
    folder: str,
    entries: Sequence[Found],
    rows: Mapping[str, Row],
    manifest: str,
    is_excluded: Exclusion,
) -> Listing:
    """Label files by the rows of a manifest."""
    excluded = set(filter(is_excluded, rows))
    notes = []
    unlabeled = [path for path, row in rows.items() if not row.label and path not in excluded]
    if unlabeled:
        notes.append(
            f"{len(unlabeled):,} rows of {manifest} have no label, or -1, such as that of "
            f"{quote_path(unlabeled[0])}: they are skipped."
        )
    rows = {path: row for path, row in rows.items() if row.label and path not in excluded}
    by_path = {entry.path: entry for entry in entries if not entry.problem}
    given = [row.columns for row in rows.values()]
    parse = manifest.lower().endswith(TYPELESS)
    kept = keep_columns(given, source=manifest, parse=parse)
    files = []
    for (path, (label, split, group, _)), columns in zip(rows.items(), kept, strict=True):
        _, _, size, version, checksum = by_path.get(path, Found(path, "", 0, MISSING, ""))
        files.append(ImageFile(path, label or "", split, size, version, group, checksum, columns))
    if all(file.version == MISSING for file in files):
        raise DataError(
            f"None of the paths in {manifest} is a file in {folder}, such as "
            f"{quote_path(next(iter(rows), ''))}: write paths relative to the folder, with / "
            f"between parts."
        )
    unlisted = (entry for entry in entries if entry.path not in rows)
    skipped = {entry.path: explain_ignored(entry) or "not in the manifest" for entry in unlisted}
    skipped |= dict.fromkeys(unlabeled, NO_LABEL) | dict.fromkeys(excluded, EXCLUDED)
    return Listing(folder, files, skipped, "manifest", tuple(notes))
