"""One pass of the trained model over the images of all splits, without augmentation.

Its table (`components/contract/image_table.py`) tells which labels may be wrong and which images
are odd or alike. A pass costs about a third of an epoch of training over the same images.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.contract.example import FILENAME, SHA256
from components.contract.image_table import write_image_table
from components.host.progress import add_progress
from components.images.pixel_statistics import measure_pixels
from components.records.record_reader import read_features
from components.trainer.export.signatures import Classifier
from components.trainer.input.shards import Shards
from components.trainer.training_input import TrainingInput

_LOGGER = logging.getLogger(__name__)

# A function of its own hides the operations within it.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_NAME, _KEY = FILENAME.encode(), SHA256.encode()
Predict = Callable[[tf.Tensor], dict[str, tf.Tensor]]


def write_images(
    classifier: Classifier,
    data: TrainingInput,
    *,
    margins: npt.NDArray[np.float32],
    unseen: npt.NDArray[np.float32] | None,
    labels: Sequence[bytes],
    directory: str,
) -> None:
    """Write `images.parquet` and, if the network has features, `embeddings.npy`.

    Rows are in the order of the splits, train first, and of the records.

    Args:
        classifier: the trained model.
        data: splits of the training.
        margins: of the images that were trained on, the first rows of the table.
        unseen: probabilities of the first rows by models that have not seen the images, [images,
            classes]; None: those of `classifier`.
        labels: of the columns.
        directory: path or URL of the folder to write to.
    """
    splits = Shards.of_all_splits(data.train.uri)
    rows = sum(shards.total for shards in splits)
    predict = make_predict(classifier)
    texts = np.array([label.decode() for label in labels] + [""], object)
    numbers = itertools.chain(margins, itertools.repeat(np.nan))
    judged = iter(() if unseen is None else unseen)
    with write_image_table(directory, rows=rows) as table:
        for shards in splits:
            identities = _identify(shards)
            for images, ids in data.read_in_order(shards):
                outputs = {name: value.numpy() for name, value in predict(images).items()}
                paths, keys = zip(*itertools.islice(identities, len(ids)), strict=True)
                others = np.array(list(itertools.islice(judged, len(ids))))
                probabilities = others if len(others) else outputs["probabilities"]
                found: dict[str, Any] = describe_predictions(probabilities, ids.numpy())
                found |= {name: texts[found[name]] for name in ("predicted", "proposed")}
                found |= measure_pixels(images.numpy())
                found["margin"] = np.fromiter(numbers, np.float32, len(ids))
                known = {"path": paths, "sha256": keys, "split": [shards.split] * len(ids)}
                # The last text is that of the label id -1, of no label in the vocabulary.
                table.add(
                    {**known, "label": texts[ids.numpy()], **found}, outputs.get("embeddings")
                )
                add_progress(directory, len(ids), total=rows, unit="images described")


def describe_predictions(
    probabilities: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]
) -> dict[str, npt.NDArray[Any]]:
    """Return columns of the table for probabilities [images, classes] and label ids.

    They are `predicted`, label ids; `proposed`, the most probable ones other than the given;
    `probability`, of the predicted; and `given_probability`.
    """
    given = np.arange(probabilities.shape[1]) == ids[:, np.newaxis]
    return {
        "predicted": probabilities.argmax(axis=1),
        "proposed": (probabilities - given).argmax(axis=1),
        "probability": probabilities.max(axis=1),
        "given_probability": (probabilities * given).sum(axis=1),
    }


def make_predict(classifier: Classifier) -> Predict:
    """Return a function of images, uint8 [batch, size, size, 3].

    It returns `probabilities`, float32 [batch, classes]; and `embeddings`, float32 [batch,
    features], if the network has them.
    """
    images = tf.TensorSpec(classifier.model.input_shape, tf.uint8)

    @tf.function(input_signature=[images], autograph=False)
    def predict(images: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = classifier.model(images, training=False)
        found = {"probabilities": tf.nn.softmax(logits / classifier.temperature)}
        features = find_features(logits)
        return found if features is None else {**found, "embeddings": features}

    concrete = predict.get_concrete_function()
    if "embeddings" not in concrete.structured_outputs:
        _LOGGER.warning(
            "The network of model.build_fn does not end with a Dense layer, so there are no "
            "embeddings of the images: similar images are not found."
        )
    return concrete  # type: ignore[no-any-return]


def _identify(shards: Shards) -> Iterator[tuple[str, str]]:
    """Yield path and digest of each record; empty if another component wrote the examples."""
    for path in shards.paths:
        for features in read_features(path, (_NAME, _KEY)):
            yield tuple(  # type: ignore[misc]
                bytes(features.get(name, b"")).decode(errors="backslashreplace")
                for name in (_NAME, _KEY)
            )


def find_features(logits: tf.Tensor) -> tf.Tensor | None:
    """Return the input of the last Dense layer, [batch, features]; None if there is none.

    Searches the graph rather than Keras's layers, which a user's network need not have.
    """
    tensor = logits
    while True:
        operation = tensor.op
        matrices = [x for x in operation.inputs if x.dtype.is_floating and x.shape.rank == 2]
        if operation.type == "MatMul" or operation.type in _CALLS:
            features = operation.inputs[0]
            is_matrix = features.dtype.is_floating and features.shape.rank == 2
            return features if is_matrix and features.shape[1] else None
        if len(matrices) != 1:
            return None
        [tensor] = matrices
