"""Which exports count as the same model."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.storage.saved_model import IDENTITY, model_digest
from components.trainer.export.graph_digest import write_identity


def export(
    folder: Path, *, weight: float = 2.0, labels: str = "cat\ndog\n", scale: float = 0.5
) -> str:
    """Export a model with a vocabulary, a table, a variable and nested functions."""
    vocabulary = folder / "labels"
    folder.mkdir()
    vocabulary.write_text(labels)

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = tf.Variable(weight)
            file = tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
            )
            self.table = tf.lookup.StaticHashTable(file, "")

    model = Model()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def serve(numbers: tf.Tensor) -> dict[str, Any]:
        scaled = tf.map_fn(lambda number: number * scale * model.weight, numbers)
        return {"label": model.table.lookup(tf.cast(scaled, tf.int64)), "score": scaled}

    target = str(folder / "model")
    tf.saved_model.save(model, target, signatures={"serving_default": serve})
    write_identity(target)
    return target


@pytest.mark.slow
def test_two_exports_of_one_model_are_the_same_and_others_are_not(tmp_path: Path) -> None:
    first, second = (export(tmp_path / name) for name in ("first", "second"))
    graphs = [Path(model, "saved_model.pb").read_bytes() for model in (first, second)]
    assert graphs[0] != graphs[1], "TensorFlow's counters no longer differ: is the file needed?"
    assert model_digest(first) == model_digest(second)
    others: dict[str, dict[str, Any]] = {
        "weights": {"weight": 3.0},
        "labels": {"labels": "dog\ncat\n"},
        "preprocessing": {"scale": 0.25},
    }
    digests = {model_digest(export(tmp_path / name, **fields)) for name, fields in others.items()}
    assert len(digests | {model_digest(first)}) == 4


def test_models_of_earlier_versions_are_told_apart_by_their_files(tmp_path: Path) -> None:
    model = Path(export(tmp_path / "one"))
    (model / IDENTITY).unlink()
    before = model_digest(str(model))
    with (model / "saved_model.pb").open("ab") as file:
        file.write(b"\x12\x00")
    assert model_digest(str(model)) != before
