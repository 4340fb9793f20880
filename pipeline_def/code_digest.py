"""Digest of our own source files: a cached result must not outlive the code that made it."""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

# TFX keys its cache by the name of an executor or a run_fn, not by what the code says.
INGEST = (
    "components/example.py",
    "components/image_check.py",
    "components/image_example_gen.py",
    "components/ingest_config.py",
    "components/listing.py",
    "components/shards.py",
)
TRANSFORM = (
    "components/example.py",
    "components/image_transform.py",
    "components/shards.py",
    "pipeline_def/image.py",
    "pipeline_def/transform.py",
)
TRAINING = (
    "components/example.py",
    "pipeline_def/dataset.py",
    "pipeline_def/image.py",
    "pipeline_def/model.py",
    "pipeline_def/serving.py",
    "pipeline_def/trainer.py",
)


def code_digest(files: tuple[str, ...]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of `files`, relative to the root."""
    digest = hashlib.sha256()
    for name in files:
        digest.update((_ROOT / name).read_bytes())
    return digest.hexdigest()[:16]
