"""Shards as Transform would write them for a few pictures, and their content."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.configuration import to_dict
from components.contract.example import ENCODED, LABEL_ID
from components.images.canonical import decode
from components.images.options import TransformConfig
from components.records.record_index import write_indexed_shard
from components.records.shard_files import shard_path, write_index
from components.trainer.config.training import TrainerConfig
from components.trainer.input.dataset import make_dataset
from components.trainer.input.shards import Shards
from tests.pictures import COLOURS, encode, picture

SIZE = 32
BATCH = 8
CONFIG = TransformConfig(size=SIZE)
FEATURE_SPEC = {
    ENCODED: tf.io.FixedLenFeature([], tf.string),
    LABEL_ID: tf.io.FixedLenFeature([], tf.int64),
}


@dataclass(frozen=True)
class ShardFolder:
    path: Path
    images: dict[str, list[bytes]]
    """Split → its canonical JPEGs, in order."""
    labels: dict[str, list[int]]

    def shards(self, split: str) -> Shards:
        return Shards.of_pattern(f"{self.path}/Split-{split}/*")

    def pixels(self, split: str) -> Any:
        return self._decoded[split]

    @functools.cached_property
    def _decoded(self) -> dict[str, Any]:
        decoded = {
            split: decode(tf.constant(images), CONFIG).numpy()
            for split, images in self.images.items()
        }
        for pixels in decoded.values():
            pixels.flags.writeable = False
        return decoded

    def stored(self, split: str) -> list[tuple[bytes, int]]:
        """Return pixels and label of every record, in order."""
        images = [image.tobytes() for image in self.pixels(split)]
        return list(zip(images, self.labels[split], strict=True))

    def dataset(self, split: str, config: TransformConfig = CONFIG, **more: Any) -> tf.data.Dataset:
        return make_dataset(
            self.shards(split),
            config=config,
            feature_spec=FEATURE_SPEC,
            **{"batch_size": BATCH, **more},
        )


def canonical_picture(number: int) -> bytes:
    color = sorted(COLOURS)[number % 3]
    return encode(picture(number, colour=color, height=SIZE, width=SIZE), "JPEG", quality=95)


def write_shards(
    path: Path,
    *,
    labels: Mapping[str, list[int]] | None = None,
    image: Callable[[int], bytes] = canonical_picture,
    **splits: Sequence[int],
) -> ShardFolder:
    """Write shards with these numbers of records; `evaluation` becomes the split eval.

    Records take the `labels` of their split, or the three label ids in turn.
    """
    folder = ShardFolder(path, {}, {})
    index: dict[str, dict[str, int]] = {}
    for seed, (name, counts) in enumerate(splits.items()):
        split = {"evaluation": "eval"}.get(name, name)
        numbers = range(1000 * seed, 1000 * seed + sum(counts))
        folder.images[split] = [image(number) for number in numbers]
        in_turn = [number % 3 for number in numbers]
        folder.labels[split] = (labels or {}).get(split, in_turn)
        records = [
            {ENCODED: image, LABEL_ID: label}
            for image, label in zip(folder.images[split], folder.labels[split], strict=True)
        ]
        index[split] = {}
        for number, count in enumerate(counts):
            shard = Path(shard_path(str(path), split, number, len(counts))).name
            index[split][shard] = write_indexed_shard(str(path), split, shard, records[:count])
            records = records[count:]
    write_index(str(path), index, labels={})
    return folder


def write_records(path: Path, splits: Mapping[str, list[dict[str, Any]]], **facts: Any) -> Path:
    """Write the records of each split to a shard of its own."""
    index = {
        split: {"one": write_indexed_shard(str(path), split, "one", records)}
        for split, records in splits.items()
    }
    write_index(str(path), index, **facts)
    return path


def name_files(folder: Path | str) -> dict[str, Any]:
    """Return the files of both splits as TFX names them."""
    return {f"{split}_files": [f"{folder}/Split-{split}/*"] for split in ("train", "eval")}


def trainer_arguments(
    config: TrainerConfig, folder: Path | str, target: Path, *, graph: str = "none"
) -> dict[str, Any]:
    """Return what TFX passes to run_fn, as far as ours reads it."""
    (target / "run").mkdir(parents=True, exist_ok=True)
    return {
        **name_files(folder),
        "transform_graph_path": graph,
        "serving_model_dir": str(target / "model"),
        "model_run_dir": str(target / "run"),
        "custom_config": to_dict(config),
        "hyperparameters": None,
    }


def examples(batches: tf.data.Dataset) -> Iterator[tuple[bytes, int]]:
    for images, labels in batches.as_numpy_iterator():
        for image, label in zip(images, labels, strict=True):
            yield np.asarray(image).tobytes(), int(label)


class Graph:
    """The part of a transform graph that training needs; a real one takes seconds to make."""

    def __init__(self, _: str) -> None:
        pass

    def transformed_feature_spec(self) -> dict[str, Any]:
        return FEATURE_SPEC

    def raw_feature_spec(self) -> dict[str, Any]:
        return {}

    def vocabulary_by_name(self, _: str) -> list[bytes]:
        return [color.encode() for color in sorted(COLOURS)]
