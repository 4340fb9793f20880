"""Check the labels of a listing before anything is read."""

from __future__ import annotations

import unicodedata

from components.contract.errors import DataError
from components.contract.printable import quote
from components.ingest.folder_layout import explain_one_class
from components.ingest.listing import Listing


def find_look_alikes(listing: Listing) -> list[str]:
    """Return a warning for labels, splits and groups that are most likely meant to be one."""
    warnings = []
    for kind, names in (
        ("labels", {file.label for file in listing.files}),
        ("splits", {file.split for file in listing.files if file.split}),
        ("groups", {file.group for file in listing.files if file.group}),
    ):
        alike: dict[str, list[str]] = {}
        for name in sorted(names):
            key = unicodedata.normalize("NFKC", name).casefold()
            alike.setdefault("".join(key.split()), []).append(name)
        for found in (found for found in alike.values() if len(found) > 1):
            composed = {unicodedata.normalize("NFC", name) for name in found}
            # Two Unicode forms of a name look the same unless they are escaped.
            show = quote if len(composed) == len(found) else ascii
            warnings.append(
                f"{kind} that differ only in case, spaces or Unicode form: "
                f"{', '.join(show(name)[:100] for name in found[:5])}"
            )
    return warnings


def check_labels(listing: Listing) -> None:
    """Raise `DataError` unless there are two labels, and each split has images of every label."""
    counts = listing.labels_per_split()
    labels = sorted(set().union(*counts.values()))
    if len(labels) < 2:
        paths = () if listing.layout == "manifest" else (file.path for file in listing.files)
        raise DataError(explain_one_class(listing.root, labels[0], paths))
    for label in labels:
        # The vocabulary is a text file with one label per line; surrogates are invalid UTF-8.
        if any(character in "\n\r" or "\ud800" <= character <= "\udfff" for character in label):
            raise DataError(
                f"The label {quote(label)} is not one line of UTF-8 text: rename its folder, or "
                f"fix the manifest."
            )
    hashed = counts.pop(None, ())
    for split, of_split in counts.items():
        divided = {label for label in hashed if split in listing.fractions_of(label)}
        if missing := [label for label in labels if label not in of_split.keys() | divided]:
            others = f" and {len(missing) - 1} more" if missing[1:] else ""
            alike = "".join(f" ({text})" for text in find_look_alikes(listing)[:1])
            raise DataError(
                f"Split {quote(split)} of {listing.root} has no images of class "
                f"{quote(missing[0])}{others}: add some, or remove the class from every "
                f"split{alike}."
            )
