"""The files by which a pushed model is known, without a model."""

from pathlib import Path

from tests.files import write_files


def saved_model(folder: Path, *, weights: bytes) -> Path:
    """Write the files."""
    files = {
        "variables/variables.index": weights,
        "variables/variables.data-00000-of-00001": weights * 2,
        "saved_model.pb": b"graph with serving_examples",
        # Without it the weights would be read.
        "assets.extra/files.json": b"{}",
    }
    return write_files(folder, files)
