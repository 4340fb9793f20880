import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader
from tfx.types import Artifact, Channel
from tfx.types.standard_artifacts import Examples, Schema

from components import ImageTrainer, ImageTransform
from components.contract import example, rules_of_thumb
from components.contract.configuration import to_dict
from components.contract.errors import DataError
from components.images.canonical import canonicalize, decode
from components.images.options import ImageOptions, TransformConfig
from components.ingest.config import IngestConfig
from components.records.shard_files import read_index, write_index
from components.trainer.input.shards import RecordTable, Shards
from components.transform.shard_writer import TransformShard
from tests import nodes
from tests.conftest import SIZE
from tests.pictures import write_folder

# One process builds the shared fixtures.
pytestmark = [pytest.mark.xdist_group("transformed"), pytest.mark.slow]

CONFIG = TransformConfig(size=SIZE)


def values(examples: Artifact, split: str, name: str) -> list[bytes]:
    records = nodes.read_examples(examples, split)
    return [record.features.feature[name].bytes_list.value[0] for record in records]


def test_each_input_shard_gives_one_output_shard_with_its_records_in_order(
    ingested: nodes.Ingested, transformed: nodes.Transformed
) -> None:
    assert read_index(transformed.examples.uri) == read_index(ingested.examples.uri)
    for split in ("train", "eval"):
        names = values(transformed.examples, split, example.FILENAME)
        assert names == values(ingested.examples, split, example.FILENAME)


def test_records_hold_what_readers_parse_with_label_ids_of_the_vocabulary(
    transformed: nodes.Transformed,
) -> None:
    output = tft.TFTransformOutput(transformed.graph.uri)
    names, spec = output.vocabulary_by_name("labels"), output.transformed_feature_spec()
    assert sorted(names) == [b"blue", b"green", b"red"]
    for record in nodes.read_examples(transformed.examples, "eval"):
        features = record.features.feature
        assert set(features) == {
            *(example.ENCODED, example.FILENAME),
            *(example.LABEL_ID, example.SHA256),
        }
        label = names[features[example.LABEL_ID].int64_list.value[0]]
        assert features[example.FILENAME].bytes_list.value[0].startswith(label + b"/")
    parsed = tf.io.parse_single_example(
        record.SerializeToString(), {key: spec[key] for key in features}
    )
    assert decode(parsed[example.ENCODED][tf.newaxis], CONFIG).shape == [1, SIZE, SIZE, 3]


def test_the_served_graph_makes_what_transform_stores(
    ingested: nodes.Ingested, transformed: nodes.Transformed
) -> None:
    # As `serving/signatures.py` applies it, to the bytes only.
    graph = tft.TFTransformOutput(transformed.graph.uri).transform_savedmodel_dir
    serve = SavedModelLoader(graph).apply_transform_model
    files = tf.constant(values(ingested.examples, "eval", example.ENCODED))
    served = serve({example.ENCODED: files[:, tf.newaxis]})[example.ENCODED].numpy().tolist()
    assert served == values(transformed.examples, "eval", example.ENCODED)


def test_several_workers_write_the_same_shards(
    ingested: nodes.Ingested,
    transformed: nodes.Transformed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Those before were written without Beam.
    monkeypatch.setattr(rules_of_thumb, "FEW_FOR_BEAM", -1)
    again = nodes.transform(ingested, tmp_path, config=CONFIG, beam_args=nodes.TWO_WORKERS)
    assert nodes.shard_bytes(again.examples) == nodes.shard_bytes(transformed.examples)


def test_an_image_that_only_looks_like_one_is_named(
    ingested: nodes.Ingested, transformed: nodes.Transformed, tmp_path: Path
) -> None:
    [good, *_] = nodes.read_examples(ingested.examples, "eval")
    bad = copy.deepcopy(good)
    for name, value in {example.ENCODED: b"\xff\xd8\xff", example.FILENAME: b"a/b.jpg"}.items():
        bad.features.feature[name].bytes_list.value[:] = [value]
    (tmp_path / "Split-eval").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "Split-eval" / "shard")) as writer:
        for record in (good, bad, good):
            writer.write(record.SerializeToString())
    work = TransformShard(transformed.graph.uri, str(tmp_path), str(tmp_path / "out"), 3)
    work.setup()
    with pytest.raises(DataError, match=r"cannot decode 'a/b\.jpg': remove it, or ingest"):
        work.work(("eval", "shard"))


def test_shards_of_unchanged_files_are_taken_over(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "images", each=20)
    options = IngestConfig(near_duplicates="keep", min_shard_images=1, min_shards=8)

    def list_new(number: int, config: TransformConfig = CONFIG, *, same: bool = False) -> set[str]:
        """Return the shards made anew; all of them are those that a first run would make."""
        ingested = nodes.ingest(folder, tmp_path / "in", config=options, number=str(number))
        transformed = nodes.transform(ingested, tmp_path / "out", config=config, number=str(number))
        if same:
            anew = nodes.transform(ingested, tmp_path / f"anew{number}", config=config)
            files, expected = (
                nodes.shard_bytes(transformed.examples),
                nodes.shard_bytes(anew.examples),
            )
            del files[example.INDEX_FILE], expected[example.INDEX_FILE]
            assert files == expected
        paths = Path(transformed.examples.uri).glob("Split-*/*")
        return {
            f"{shard.parent.name}/{shard.name}" for shard in paths if shard.stat().st_nlink == 1
        }

    every = list_new(1)
    shutil.copy(folder / "red/001.jpeg", folder / "blue/another.jpeg")
    assert 0 < len(list_new(2)) < len(every) / 2
    [damaged, removed, *_] = sorted((tmp_path / "out/examples/2").glob("Split-*/*"))
    damaged.write_bytes(b"damaged")
    removed.unlink()
    assert list_new(3) == {f"{shard.parent.name}/{shard.name}" for shard in (damaged, removed)}
    (folder / "green/002.jpeg").rename(folder / "red/of another label.jpeg")
    assert 0 < len(list_new(4, same=True)) < len(every) / 2
    assert len(list_new(5, TransformConfig(size=SIZE, quality=50))) >= len(every)
    # Of the newest output that was made alike, the source is gone.
    shutil.rmtree(tmp_path / "in/examples/5")
    assert len(list_new(6, TransformConfig(size=SIZE, quality=50))) >= len(every)


def test_the_record_index_locates_each_image(transformed: nodes.Transformed) -> None:
    shards = Shards.of_pattern(f"{transformed.examples.uri}/Split-train/*")
    table = RecordTable.read(shards)
    records = nodes.read_examples(transformed.examples, "train")
    assert len(records) == shards.total == len(table.label)
    contents = [Path(path).read_bytes() for path in shards.paths]
    for i, record in enumerate(records):
        features = record.features.feature
        start, end = table.offset[i], table.offset[i] + table.length[i]
        image = contents[table.shard[i]][start:end]
        assert image == features[example.ENCODED].bytes_list.value[0]
        assert table.label[i] == features[example.LABEL_ID].int64_list.value[0]


def test_the_served_graph_shrinks_as_the_index_of_the_examples_says(
    ingested: nodes.Ingested, tmp_path: Path
) -> None:
    # As if the examples came from another pipeline.
    shutil.copytree(ingested.examples.uri, tmp_path / "imported")
    (tmp_path / "imported" / "index.json").unlink()
    shrinking: dict[str, Any] = {"shrink": 20, "quality": 90}
    index = {**read_index(ingested.examples.uri), "ingest": shrinking}
    write_index(str(tmp_path / "imported"), **index)
    examples = copy.deepcopy(ingested.examples)
    examples.uri = str(tmp_path / "imported")
    imported = nodes.Ingested(examples, ingested.rejects)
    stored = nodes.transform(imported, tmp_path, config=CONFIG)
    assert read_index(stored.examples.uri)["ingest"] == shrinking
    serve = SavedModelLoader(
        tft.TFTransformOutput(stored.graph.uri).transform_savedmodel_dir
    ).apply_transform_model
    [record, *_] = nodes.read_examples(examples, "eval")
    encoded = tf.constant([record.features.feature[example.ENCODED].bytes_list.value])
    [served] = serve({example.ENCODED: encoded})[example.ENCODED].numpy()
    as_is, shrunk = (
        canonicalize(encoded[0], CONFIG, ingest=ImageOptions(**fields)).numpy()[0]
        for fields in (dict[str, Any](), shrinking)
    )
    assert served == shrunk != as_is


def test_the_trainer_knows_how_images_are_transformed() -> None:
    transform = ImageTransform(
        examples=Channel(type=Examples), schema=Channel(type=Schema), config=CONFIG
    )
    trainer = ImageTrainer(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
    )
    assert json.loads(trainer.exec_properties["custom_config"])["transform"] == to_dict(CONFIG)


def test_examples_without_an_index_are_refused(ingested: nodes.Ingested, tmp_path: Path) -> None:
    shutil.copytree(ingested.examples.uri, tmp_path / "others")
    (tmp_path / "others" / "index.json").unlink()
    examples = copy.deepcopy(ingested.examples)
    examples.uri = str(tmp_path / "others")
    with pytest.raises(DataError, match="has no index: transform the examples of an ImageExample"):
        nodes.transform(nodes.Ingested(examples, ingested.rejects), tmp_path, config=CONFIG)
