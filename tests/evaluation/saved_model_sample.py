"""The files by which a pushed model is known, without a model."""

from pathlib import Path


def saved_model(folder: Path, *, weights: bytes) -> Path:
    """Write the files."""
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "variables.index").write_bytes(weights)
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(weights * 2)
    (folder / "saved_model.pb").write_bytes(b"graph with serving_examples")
    (folder / "assets.extra").mkdir()
    # Without it the weights would be read.
    (folder / "assets.extra" / "files.json").write_text("{}")
    return folder
