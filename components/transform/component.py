"""ImageTransform: TFX's Transform analyses; the transformed records are written shard by shard.

TFX writes Transform's output as one gzip file per split with one worker, after moving every image
through Beam. Here a Beam element is the path of a shard, and each input shard becomes one
uncompressed output shard with its records in the same order.
"""

from __future__ import annotations

from tfx.components.transform import component
from tfx.dsl.components.base import executor_spec

from components.transform.executor import Executor


class ImageTransform(component.Transform):
    """TFX's Transform with uncompressed, interleavable output shards and an index of them."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
