"""What ingest and validation found: rejected files, images found twice, anomalies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.report.facts import Reject, ReportFacts, SameImage
from components.report.page.elements import (
    bullets,
    cards,
    clip,
    count,
    first_of,
    framed,
    paragraph,
    table,
    text,
)

_OPEN = 12
_SIDE = 80
_PATH = 200


def write_files(facts: ReportFacts) -> str:
    """Write a part for each kind of finding."""
    files = facts.files
    return "\n".join(
        (
            _count_files(files),
            "<h3>Rejected files</h3>",
            _list_rejects(facts.rejects, files),
            "<h3>Images found several times</h3>",
            _list_same(facts.same_images, files),
            "<h3>Anomalies</h3>",
            _list_anomalies(facts.anomalies),
        )
    )


def _count_files(files: Mapping[str, Any]) -> str:
    if "files" not in files:
        return paragraph("What became of the files is not known.")
    parts = (f"{files.get(key, 0):,} {what}" for key, what in _FATES.items())
    reasons = files.get("skipped_by_reason", {}).items()
    why = f" Skipped: {', '.join(f'{n:,} {text(reason)}' for reason, n in reasons)}."
    return paragraph(
        f"{count(files['files'], 'file')}: {', '.join(parts)}.{why if reasons else ''}"
    )


_FATES = {"examples": "used", "rejected": "rejected", "skipped": "skipped"}


def _list_rejects(rejects: Sequence[Reject], files: Mapping[str, Any]) -> str:
    total = files.get("rejected", len(rejects))
    if not total:
        known = "No file was rejected." if files else "Whether files were rejected is not known."
        return paragraph(known)
    categories = files.get("rejected_by_category", {})
    rows = ([text(category), f"{number:,}"] for category, number in categories.items())
    counts = table(("Category", "Files"), rows, name="Rejected files by category")
    items = [
        framed(reject.picture, f"What can be seen of {reject.path}", side=_SIDE)
        + f"<div><p><strong>{text(reject.category)}</strong></p>"
        + f"<p>{clip(reject.reason, most=_PATH)}</p>"
        + f"<p><code>{clip(reject.path, most=_PATH)}</code></p></div>"
        for reject in rejects
    ]
    shown = paragraph(f"{first_of(len(rejects), total, 'rejected file')}.")
    listing = cards(items, style="files", open_=_OPEN, things="rejected files")
    return counts * bool(categories) + (shown + listing) * bool(rejects)


def _list_same(images: Sequence[SameImage], files: Mapping[str, Any]) -> str:
    if not images and not files.get("duplicates"):
        known = "No image was found twice." if files else "Whether any was is not known."
        return paragraph(known)
    conflicts, spread = (files.get(key, 0) for key in ("label_conflicts", "in_several_splits"))
    about = (
        f"{count(files.get('duplicates', 0), 'file')} repeat another byte for byte. "
        f"Under several labels: {count(conflicts, 'image')}. In several splits, so that the model "
        f"is tested on what it was trained on: {count(spread, 'image')}."
    )
    if not images:
        return paragraph(about)
    shown = f"The first {len(images):,} are shown, those under several labels first."
    items = [_show_same(image) for image in images]
    listing = cards(items, style="files", open_=_OPEN, things="images")
    return paragraph(f"{about} {shown}") + listing


def _show_same(image: SameImage) -> str:
    labels, splits = (", ".join(map(text, names)) for names in (image.labels, image.splits))
    conflict = '<strong class="bad">Conflict:</strong> ' if len(image.labels) > 1 else ""
    leak = '<strong class="bad">Leak:</strong> ' if len(image.splits) > 1 else ""
    paths = "".join(
        f"<p><code>{clip(path, most=_PATH)}</code></p>" for path in image.paths[:_PATHS]
    )
    more = len(image.paths) - _PATHS
    rest = f"<p>and {count(more, 'more file')}</p>" if more > 0 else ""
    return (
        framed(image.picture, f"The image in {image.paths[0]}", side=_SIDE)
        + f"<div><p>{conflict}{labels}</p><p>{leak}in {splits}</p>{paths}{rest}</div>"
    )


_PATHS = 4


def _list_anomalies(anomalies: Mapping[str, Sequence[str]]) -> str:
    if not anomalies:
        return paragraph("The data was not validated.")
    parts = []
    for split, found in anomalies.items():
        parts.append(
            paragraph(
                f"<strong>{text(split)}</strong>: {count(len(found), 'anomaly', 'anomalies')}."
            )
            + bullets(map(text, found))
            if found
            else paragraph(f"<strong>{text(split)}</strong>: no anomaly.")
        )
    return "\n".join(parts)
