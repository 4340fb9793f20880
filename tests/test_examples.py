"""The example pipeline, as a user starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.pictures import COLOURS, encode, picture, write_folder

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_example_makes_a_model_that_knows_the_colours(tmp_path: Path) -> None:
    images, output = write_folder(tmp_path / "images", each=20), tmp_path / "out"
    command = [sys.executable, "-m", "examples.pipeline", str(images), str(output)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    [model] = (output / "artifacts" / "ImageTrainer" / "model").iterdir()
    serve = tf.saved_model.load(str(model / "Format-Serving")).signatures["serving_default"]
    new = [encode(picture(9_000, colour=name, height=50, width=40), "JPEG") for name in COLOURS]
    answer = serve(image_bytes=tf.constant(new))
    assert [label.decode() for label in answer["label"].numpy()] == list(COLOURS)
