"""The label ids of a split, without its images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from components.contract.example import LABEL_ID
from pipeline_def.data.order import Int64Array
from pipeline_def.data.shards import RecordTable, Shards

# Records that are parsed in one call.
_BATCH = 1024


def read_labels(shards: Shards, feature_spec: Mapping[str, Any]) -> Int64Array:
    """Return the label ids of all records, in the order of the shards.

    They stand in the index of the images; shards without one are read once, and not decoded.
    """
    try:
        return RecordTable.read(shards).label
    except FileNotFoundError:
        return _read_in_sequence(shards, {LABEL_ID: feature_spec[LABEL_ID]})


def _read_in_sequence(shards: Shards, spec: Mapping[str, Any]) -> Int64Array:
    batches = tf.data.TFRecordDataset(shards.paths).batch(_BATCH)
    parsed = batches.map(lambda serialized: tf.io.parse_example(serialized, spec)[LABEL_ID])
    return np.concatenate(list(parsed.as_numpy_iterator()))
