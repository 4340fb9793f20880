"""Examples as the steps before the report write them, without Beam."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID
from components.records.record_index import write_indexed_shard
from components.records.shard_files import write_index
from tests.pictures import COLOURS, encode, picture

LABELS = tuple(COLOURS)
SIZE = 32


class Record(NamedTuple):
    filename: str
    label_id: int
    encoded: bytes


def make_records(each: int) -> list[Record]:
    """Pictures of each colour by turns."""
    return [
        Record(f"{label}/{number}.jpg", label_id, encode(image, "JPEG"))
        for number in range(each)
        for label_id, label in enumerate(LABELS)
        for image in [picture(3 * number + label_id, colour=label, height=SIZE, width=SIZE)]
    ]


def write_splits(folder: Path, splits: Mapping[str, list[Record]]) -> str:
    """Write each split into two shards, with their indexes; return the folder."""
    shards: dict[str, dict[str, int]] = {}
    labels: dict[str, dict[str, int]] = {}
    for split, records in splits.items():
        shards[split] = {}
        for number, rows in enumerate(np.array_split(np.arange(len(records)), 2)):
            name = f"data_tfrecord-{number:05d}-of-00002"
            features = [_make_features(records[row]) for row in rows]
            shards[split][name] = write_indexed_shard(str(folder), split, name, features)
        texts = [LABELS[record.label_id] for record in records]
        labels[split] = {label: texts.count(label) for label in LABELS}
    write_index(str(folder), shards, labels=labels)
    return str(folder)


def _make_features(record: Record) -> dict[str, bytes | str | int]:
    return {
        ENCODED: record.encoded,
        FILENAME: record.filename,
        LABEL: LABELS[record.label_id],
        LABEL_ID: record.label_id,
    }
