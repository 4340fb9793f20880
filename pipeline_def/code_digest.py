"""Digest of our own source files: a cached result must not outlive the code that made it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# Node → the files and folders that decide what it writes. TFX keys its cache by the name of an
# executor or a run_fn, not by what the code says.
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
    "SchemaGen": (
        "components/example.py",
        "components/image_schema_gen.py",
        "components/image_statistics.py",
        "components/validation_config.py",
    ),
    "ExampleValidator": (
        "components/drift.py",
        "components/example.py",
        "components/image_statistics.py",
        "components/image_validator.py",
        "components/kept_statistics.py",
        "components/lookup_driver.py",
        "components/record_checks.py",
    ),
    "AnomalyGate": (
        "components/anomaly_gate.py",
        "components/findings.py",
        "components/image_statistics.py",
        "components/kept_statistics.py",
        "components/validation_config.py",
    ),
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
    "BaselineFinder": (
        "components/baseline.py",
        "components/lookup_driver.py",
        "components/object_store.py",
    ),
    "Evaluator": (
        "components/curves.py",
        "components/evaluation_extractors.py",
        "components/evaluation_hooks.py",
        "components/evaluation_metrics.py",
        "components/evaluation_slices.py",
        "components/image_evaluator.py",
        "components/prediction_file.py",
        "components/tally.py",
    ),
    "ImageReport": (
        "components/anomaly_gate.py",
        "components/blessing.py",
        "components/breakdown.py",
        "components/card_evaluation.py",
        "components/class_samples.py",
        "components/curves.py",
        "components/example.py",
        "components/findings.py",
        "components/image_report.py",
        "components/intervals.py",
        "components/markdown.py",
        "components/measures.py",
        "components/metrics_file.py",
        "components/mistakes.py",
        "components/model_card.py",
        "components/page",
        "components/prediction_file.py",
        "components/predictions.py",
        "components/printing.py",
        "components/report_facts.py",
        "components/report_sources.py",
        "components/shards.py",
        "components/source_pictures.py",
        "components/tally.py",
        "components/thumbnails.py",
        "components/ui_artifacts.py",
        "pipeline_def/augmentation.py",
        "pipeline_def/image.py",
        "pipeline_def/preview.py",
    ),
    "Pusher": (
        "components/image_pusher.py",
        "components/object_store.py",
        "components/ui_artifacts.py",
    ),
}


def code_digest(node: str) -> str:
    """Return 16 hexadecimal digits that change with our code of `node`; "" for TFX's own nodes."""
    return _digest(_SOURCES[node]) if node in _SOURCES else ""


def whole_digest() -> str:
    """Return 16 hexadecimal digits that change with our code of any node."""
    return _digest({name for names in _SOURCES.values() for name in names})


def _digest(names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        path = _ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
