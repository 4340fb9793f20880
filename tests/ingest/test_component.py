"""ImageExampleGen as TFX runs it: driver, executor and Beam."""

import dataclasses
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from components.contract import example, rules_of_thumb
from components.contract.errors import UserError
from components.ingest.component import Driver, ImageExampleGen
from components.ingest.config import IngestConfig
from components.ingest.write import processes as plan_processes
from components.records.shard_files import count_examples, read_index
from tests import nodes
from tests.ingest import plain
from tests.ingest.test_plan_processes import list_workers
from tests.pictures import write_folder


def text(record: Any, key: str) -> str:
    return str(record.features.feature[key].bytes_list.value[0].decode())


def number(record: Any, key: str) -> int:
    return int(record.features.feature[key].int64_list.value[0])


def test_every_file_is_accounted_for(ingested: nodes.Ingested, image_folder: Path) -> None:
    summary = json.loads(Path(ingested.rejects.uri, "summary.json").read_text())
    assert {name: value for name, value in summary.items() if value} == {
        "files": 122,
        "examples": 120,
        "rejected": 1,
        "skipped": 1,
        "rejected_by_category": {"not an image": 1},
        "skipped_by_reason": {"hidden": 1},
    }
    [skipped] = Path(ingested.rejects.uri, "skipped.jsonl").read_text().splitlines()
    assert json.loads(skipped) == {"path": "red/.DS_Store", "reason": "hidden"}
    [reject] = Path(ingested.rejects.uri, "rejects.jsonl").read_text().splitlines()
    why = {"category": "not an image", "reason": "unknown image format"}
    assert json.loads(reject) == {"path": "red/broken.jpg", **why}
    records = [r for s in ("train", "eval") for r in nodes.read_examples(ingested.examples, s)]
    value = sorted(text(record, example.FILENAME) for record in records)
    files = [p for p in image_folder.rglob("*.*") if p.name not in ("broken.jpg", ".DS_Store")]
    assert value == sorted(str(path.relative_to(image_folder)) for path in files)


def test_records_hold_files_and_properties(ingested: nodes.Ingested, image_folder: Path) -> None:
    for record in nodes.read_examples(ingested.examples, "train"):
        path = text(record, example.FILENAME)
        data = (image_folder / path).read_bytes()
        features = record.features.feature
        assert features[example.ENCODED].bytes_list.value[0] == data
        assert text(record, example.SHA256) == hashlib.sha256(data).hexdigest()
        assert text(record, example.LABEL) == path.split("/")[0]
        assert text(record, example.FORMAT) == path.rsplit(".", 1)[1]
        sizes = [number(record, key) for key in (example.HEIGHT, example.WIDTH, example.CHANNELS)]
        assert sizes == [24, 32, 3]
        assert number(record, example.FILE_SIZE) == len(data)
        gray = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
        luminance = features[example.LUMINANCE].float_list.value[0]
        assert luminance == pytest.approx(gray.mean(), abs=1)


def test_several_uncompressed_shards_with_an_index(ingested: nodes.Ingested) -> None:
    index = read_index(ingested.examples.uri)
    written = {path for path in nodes.shard_bytes(ingested.examples) if path.startswith("Split")}
    assert written == {
        f"Split-{s}/{name}" for s, names in index["splits"].items() for name in names
    }
    assert len(index["splits"]["train"]) == 4
    counts = {s: len(nodes.read_examples(ingested.examples, s)) for s in ("train", "eval")}
    assert count_examples(index) == counts
    labels = {label for labels in index["labels"].values() for label in labels}
    assert labels == {"blue", "green", "red"}


def test_same_bytes_without_beam_and_with_several_workers(
    ingested: nodes.Ingested, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules_of_thumb, "FEW_FOR_BEAM", -1)
    config = IngestConfig(threads=5)
    again = nodes.ingest(image_folder, tmp_path, config=config, beam_args=nodes.TWO_WORKERS)
    assert nodes.shard_bytes(again.examples) == nodes.shard_bytes(ingested.examples)
    assert nodes.shard_bytes(again.rejects) == nodes.shard_bytes(ingested.rejects)


@pytest.mark.slow
def test_same_bytes_with_processes(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each of them would load TensorFlow to decode PNGs.
    config = dataclasses.replace(plain.HEADER, threads=2)
    expected = nodes.ingest(image_folder, tmp_path / "one", config=config)
    monkeypatch.setattr(plan_processes, "MIN_FILES", 1)
    again = nodes.ingest(image_folder, tmp_path / "two", config=config)
    assert nodes.shard_bytes(again.examples) == nodes.shard_bytes(expected.examples)
    assert nodes.shard_bytes(again.rejects) == nodes.shard_bytes(expected.rejects)
    assert not list_workers(psutil.Process())


def resolve(pattern: str, listings: Path, config: IngestConfig | None = None) -> dict[str, Any]:
    """What the driver adds to the properties that the cache is looked up with."""
    generator = ImageExampleGen(
        folder=pattern, config=config or IngestConfig(), listings=str(listings)
    )
    given = dict(generator.exec_properties)
    resolved = Driver(None).resolve_exec_properties(given, None, None)
    return {name: value for name, value in resolved.items() if name not in given}


def test_the_driver_keys_the_cache_by_span_version_and_content(tmp_path: Path) -> None:
    pattern = f"{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}/v{{VERSION}}"
    listings = tmp_path / "listings"
    days = {("2025-01-01", 1): 20089, ("2025-01-01", 2): 20089, ("2025-01-02", 1): 20090}
    resolved = []
    for (day, version), span in days.items():
        write_folder(tmp_path / day / f"v{version}", each=2)
        resolved.append(resolve(pattern, listings))
        assert (resolved[-1]["span"], resolved[-1]["version"]) == (span, version)
        assert resolve(pattern, listings) == resolved[-1]
    for name in ("input_fingerprint", "listing"):
        assert len({properties[name] for properties in resolved}) == 3
    assert resolve(pattern, listings, IngestConfig(span=20089)) == resolved[1]
    with pytest.raises(UserError, match="No folder matches"):
        resolve(pattern, listings, IngestConfig(span=1))


def test_files_changed_after_the_listing_are_rejected_and_new_ones_ignored(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=10)
    resolved = resolve(str(folder), tmp_path / "listings")
    (folder / "red" / "new.jpg").write_bytes((folder / "red" / "001.jpeg").read_bytes())
    (folder / "red" / "002.jpeg").unlink()
    (folder / "red" / "003.jpeg").write_bytes(b"otherwise")
    config = IngestConfig(max_reject_fraction=0.1)
    output = nodes.ingest(folder, tmp_path / "out", config=config, listing=resolved["listing"])
    rejects = Path(output.rejects.uri, "rejects.jsonl").read_text().splitlines()
    assert [(r["path"], r["reason"]) for r in map(json.loads, rejects)] == [
        ("red/002.jpeg", "it has gone since it was listed"),
        ("red/003.jpeg", "it has changed since it was listed"),
    ]
    assert sum(count_examples(read_index(output.examples.uri)).values()) == 28
    with pytest.raises(UserError, match="2 of 30 files"):
        nodes.ingest(folder, tmp_path / "strict", listing=resolved["listing"])
