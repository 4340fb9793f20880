"""Writes a prepared data set that `tfds.builder_from_directory` reads.

Source: `dataset_info.proto` and `feature.proto` of tensorflow_datasets 4.9.
"""

import json
import math
import os
from collections.abc import Iterator
from typing import Any

from components.records.tfrecord import RecordWriter, Value, serialize
from pipeline_def.local.export.images import Collection, Exported
from pipeline_def.local.export.parquet import name_column

_NAME, _VERSION = "images", "1.0.0"
_FEATURES = "tensorflow_datasets.core.features"
# What an image lacks of a further column: TFDS has no missing values.
_MISSING: dict[str, Value] = {"str": "", "int": -(2**63), "float": math.nan}
_TEXT = {"pythonClassName": f"{_FEATURES}.text_feature.Text", "text": {}}


def write(collection: Collection, target: str) -> Iterator[Exported]:
    """Write TFRecord files and their description below `target`, and yield each image."""
    numbers = {label: number for number, label in enumerate(collection.labels)}
    splits = []
    for split in collection.counts:
        lengths, size = [], 0
        for shard, shards, images in collection.shards(split):
            name = f"{_NAME}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"
            length = 0
            with RecordWriter(os.path.join(target, name)) as writer:
                for image in images:
                    writer.write(serialize(_make_features(image, collection, numbers)))
                    length += 1
                    yield image
                size += writer.position
            lengths.append(str(length))
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        shape = {"name": split, "shardLengths": lengths, "numBytes": str(size)}
        splits.append({**shape, "filepathTemplate": template})
    info = {
        "name": _NAME,
        "version": _VERSION,
        "description": "Images exported by local_runner.py export-data.",
        "fileFormat": "tfrecord",
        "supervisedKeys": {"tuple": {"items": [{"featureKey": "image"}, {"featureKey": "label"}]}},
        "splits": splits,
    }
    _write(target, "dataset_info.json", json.dumps(info, indent=2))
    _write(target, "features.json", json.dumps(_describe(collection), indent=2))
    _write(target, "label.labels.txt", "".join(f"{label}\n" for label in collection.labels))


def _make_features(
    image: Exported, collection: Collection, numbers: dict[str, int]
) -> dict[str, Value]:
    further = {
        name_column(name): image.columns.get(name, _MISSING[of])
        for name, of in collection.columns.items()
    }
    return {
        "image": image.encoded,
        "label": numbers[image.label],
        "path": image.path,
        "sha256": image.sha256,
        **further,
    }


def _describe(collection: Collection) -> dict[str, Any]:
    def scalar(dtype: str) -> dict[str, Any]:
        tensor = {"shape": {}, "dtype": dtype, "encoding": "none"}
        return {"pythonClassName": f"{_FEATURES}.scalar.Scalar", "tensor": tensor}

    kinds = {"str": _TEXT, "int": scalar("int64"), "float": scalar("float32")}
    features = {
        "image": {
            "pythonClassName": f"{_FEATURES}.image_feature.Image",
            "image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"},
        },
        "label": {
            "pythonClassName": f"{_FEATURES}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(len(collection.labels))},
        },
        "path": _TEXT,
        "sha256": _TEXT,
        **{name_column(name): kinds[of] for name, of in collection.columns.items()},
    }
    return {
        "pythonClassName": f"{_FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _write(target: str, name: str, text: str) -> None:
    with open(os.path.join(target, name), "w", encoding="utf-8") as file:
        file.write(text)
