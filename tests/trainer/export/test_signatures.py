from pathlib import Path

import tensorflow as tf

from components.storage.saved_model import model_digest
from components.trainer.export.signatures import save_atomically


def test_two_exports_of_one_model_are_the_same_and_others_are_not(tmp_path: Path) -> None:
    def export(name: str, weight: float, identity: str) -> str:
        model = tf.Module()
        model.weight = tf.Variable(weight)
        signature = tf.TensorSpec([], tf.float32)
        scale = tf.function(lambda x: {"y": x * model.weight}, input_signature=[signature])
        save_atomically(model, str(tmp_path / name), {"serving_default": scale}, identity)
        return str(tmp_path / name)

    first, again = export("first", 2.0, "labels"), export("again", 2.0, "labels")
    graphs = [Path(model, "saved_model.pb").read_bytes() for model in (first, again)]
    assert graphs[0] != graphs[1], "TensorFlow's counters no longer differ: is the file needed?"
    assert model_digest(first) == model_digest(again)
    others = [export("weights", 3.0, "labels"), export("labels", 2.0, "other labels")]
    assert len({*map(model_digest, [first, *others])}) == 3
