"""What lies in folders of images and is none: hidden files, and those that systems leave."""

from __future__ import annotations

from components.storage.folder import Found

_LEFT_BY_SYSTEMS = frozenset({"Thumbs.db", "ehthumbs.db", "desktop.ini", "__MACOSX"})


def explain_litter(entry: Found) -> str:
    """Return why an entry of a folder is not taken for an image; an empty text if it is."""
    parts = entry.path.split("/")
    if not entry.is_file:
        return "not a regular file"
    if any(part.startswith(".") for part in parts):
        return "hidden"
    return "left by the system" if not _LEFT_BY_SYSTEMS.isdisjoint(parts) else ""
