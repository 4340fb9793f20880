"""Folders that pass for SavedModels."""

from __future__ import annotations

from pathlib import Path


def saved_model(folder: Path, *, weights: bytes, whole: bool = True) -> Path:
    """Write the files of a SavedModel that BaselineFinder reads."""
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_bytes(weights)
    if whole:
        (folder / "saved_model.pb").write_bytes(b"graph")
    return folder
