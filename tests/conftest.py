"""Fixtures that run the real components, once a session, on a few images made on the spot."""

from __future__ import annotations

import os

# Before TensorFlow is imported: errors only, as there is no GPU to report on.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from components.transform.config import TransformConfig
from tests.pictures import write_folder

if TYPE_CHECKING:
    from tests import nodes

SIZE = 32


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 40 pictures, with a broken one and a hidden file among them."""
    folder = write_folder(tmp_path_factory.mktemp("images"), each=40)
    (folder / "red" / "broken.jpg").write_bytes(b"no image")
    (folder / "red" / ".DS_Store").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def ingested(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> nodes.Ingested:
    """`image_folder` after ImageExampleGen."""
    from tests import nodes

    return nodes.ingest(image_folder, tmp_path_factory.mktemp("ingested"))


@pytest.fixture(scope="session")
def transformed(
    ingested: nodes.Ingested, tmp_path_factory: pytest.TempPathFactory
) -> nodes.Transformed:
    """`image_folder` after Transform to 32 x 32 pixels."""
    from tests import nodes

    return nodes.transform(
        ingested, tmp_path_factory.mktemp("transformed"), config=TransformConfig(size=SIZE)
    )
