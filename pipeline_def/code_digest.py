"""Digest of our own source files: a cached result must not outlive the code that made it."""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# Node → the files that decide what it writes. TFX keys its cache by the name of an executor or a
# run_fn, not by what the code says.
_SOURCES = {
    "ImageExampleGen": (
        "components/concurrent.py",
        "components/example.py",
        "components/fetch.py",
        "components/image_check.py",
        "components/image_example_gen.py",
        "components/ingest.py",
        "components/ingest_config.py",
        "components/jpeg_check.py",
        "components/listing.py",
        "components/manifest.py",
        "components/object_store.py",
        "components/report.py",
        "components/shards.py",
        "components/spans.py",
        "components/storage.py",
        "components/tfrecord.py",
        "components/transcode.py",
        "components/verdict.py",
    ),
    "SchemaGen": ("components/image_schema_gen.py",),
    "AnomalyGate": ("components/anomaly_gate.py",),
    "Transform": (
        "components/concurrent.py",
        "components/example.py",
        "components/image_transform.py",
        "components/record_index.py",
        "components/shards.py",
        "components/tfrecord.py",
        "pipeline_def/image.py",
        "pipeline_def/transform.py",
    ),
    "Trainer": (
        "components/example.py",
        "components/record_index.py",
        "pipeline_def/augmentation.py",
        "pipeline_def/cache.py",
        "pipeline_def/checkpoint.py",
        "pipeline_def/colour.py",
        "pipeline_def/dataset.py",
        "pipeline_def/draws.py",
        "pipeline_def/host_calls.py",
        "pipeline_def/host_decode.py",
        "pipeline_def/image.py",
        "pipeline_def/indexed_reader.py",
        "pipeline_def/input_report.py",
        "pipeline_def/memory.py",
        "pipeline_def/model.py",
        "pipeline_def/moments.py",
        "pipeline_def/placement.py",
        "pipeline_def/records.py",
        "pipeline_def/serving.py",
        "pipeline_def/source.py",
        "pipeline_def/streamed_reader.py",
        "pipeline_def/trainer.py",
        "pipeline_def/training.py",
        "pipeline_def/training_log.py",
    ),
    "BaselineFinder": ("components/baseline.py", "components/object_store.py"),
    "Evaluator": ("components/image_evaluator.py",),
    "ImageReport": (
        "components/example.py",
        "components/image_report.py",
        "components/predictions.py",
        "components/report_page.py",
        "components/shards.py",
        "components/ui_artifacts.py",
    ),
}


def code_digest(node: str) -> str:
    """Return 16 hexadecimal digits that change with our code of `node`; "" for TFX's own nodes."""
    if node not in _SOURCES:
        return ""
    digest = hashlib.sha256()
    for name in _SOURCES[node]:
        digest.update((_ROOT / name).read_bytes())
    return digest.hexdigest()[:16]
