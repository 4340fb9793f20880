"""Folders that look like SavedModels to what tells them apart."""

from __future__ import annotations

from pathlib import Path


def saved_model(folder: Path, *, weights: bytes, whole: bool = True) -> Path:
    """What BaselineFinder looks at of a SavedModel."""
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_bytes(weights)
    if whole:
        (folder / "saved_model.pb").write_bytes(b"graph")
    return folder
