"""Contenders of the ingest benchmark, and unique copies of your images for them."""

import asyncio
import hashlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import google_crc32c

from benchmarks.peers.ingest_peers import BEAM_ARGS, JPEG_QUALITY, PEERS, list_files
from components.contract.errors import DataError
from components.images.check import check_image
from components.ingest.config import IngestConfig

CANONICAL = 224
"""Side of Transform's images, pixels."""
_BATCH = 256
CORES = 2

Run = Callable[[str, str], None]
"""From the folder of images to a new, empty one."""


def prepare(name: str, mode: str) -> Run:
    """Return the function to time."""
    if name == "ours":
        return _transform if mode == "transform" else _ingest
    if name in PEERS:
        return PEERS[name]
    return _LIMITS[name]


def _artifact(kind: Any, uri: str) -> Any:
    artifact = kind()
    artifact.uri = uri
    os.makedirs(uri, exist_ok=True)
    return artifact


def _ingest(source: str, target: str) -> None:
    """Run ImageExampleGen's executor, Beam included."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from components.contract.configuration import to_json
    from components.contract.tfx_classes import ImageRejects
    from components.ingest.executor import Executor

    outputs = {
        "examples": [_artifact(standard_artifacts.Examples, f"{target}/examples")],
        "rejects": [_artifact(ImageRejects, f"{target}/rejects")],
    }
    properties = {"input_base": source, "config": to_json(IngestConfig(check="header"))}
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_ARGS))
    Executor(context).Do({}, outputs, properties)


def ingested(source: str, target: str) -> None:
    """Ingest the images and infer a schema for Transform."""
    from tfx.components.statistics_gen.executor import Executor as StatisticsGen
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from components.validation.schema_gen import Executor as SchemaGen
    from components.validation.statistics_gen import statistics_options

    _ingest(source, target)
    examples = _examples(target)
    statistics = _artifact(standard_artifacts.ExampleStatistics, f"{target}/statistics")
    schema = _artifact(standard_artifacts.Schema, f"{target}/schema")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_ARGS))
    options = {"stats_options_json": statistics_options().to_json()}
    StatisticsGen(context).Do({"examples": [examples]}, {"statistics": [statistics]}, options)
    SchemaGen().Do({"statistics": [statistics]}, {"schema": [schema]}, {})


def _examples(folder: str) -> Any:
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts

    examples = _artifact(standard_artifacts.Examples, f"{folder}/examples")
    examples.split_names = '["eval","train"]'
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    examples_utils.set_file_format(examples, "tfrecords_gzip")
    return examples


def _transform(source: str, target: str) -> None:
    """Run ImageTransform's executor on the output of `ingested`."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import standard_artifacts

    from components.transform.executor import Executor

    schema = _artifact(standard_artifacts.Schema, f"{source}/schema")
    outputs = {
        "transformed_examples": [_artifact(standard_artifacts.Examples, f"{target}/examples")],
        "transform_graph": [_artifact(standard_artifacts.TransformGraph, f"{target}/graph")],
    }
    transform = {"size": CANONICAL, "fit": "crop", "quality": JPEG_QUALITY}
    properties = {
        "preprocessing_fn": "components.transform.executor.preprocessing_fn",
        "custom_config": json.dumps(transform),
        "disable_statistics": 1,
    }
    inputs = {"examples": [_examples(source)], "schema": [schema]}
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM_ARGS))
    Executor(context).Do(inputs, outputs, properties)


def _bare_graph(source: str, target: str) -> None:
    """Map the graph of an earlier Transform over the shards with tf.data; write nothing."""
    import tensorflow as tf
    import tensorflow_transform as tft

    output = tft.TFTransformOutput(f"{source}/transformed/graph")
    layer, spec = output.transform_features_layer(), output.raw_feature_spec()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def graph(records: Any) -> Any:
        return layer(tf.io.parse_example(records, spec))

    shards = sorted(str(path) for path in Path(source, "examples").glob("Split-*/*"))
    batches = tf.data.TFRecordDataset(shards).batch(64)
    traced = graph.get_concrete_function()
    # With AUTOTUNE, or one call a core, a third of the cores was idle in most processes.
    for _ in batches.map(traced, num_parallel_calls=2 * CORES, deterministic=False).prefetch(1):
        pass


def _in_processes(work: Callable[[Sequence[str], str], None]) -> Run:
    """Divide the files among a process per core."""

    def run(source: str, target: str) -> None:
        files = [path for path, _ in list_files(source)]
        parts = [files[core::CORES] for core in range(CORES)]
        with ProcessPoolExecutor(CORES, mp_context=get_context("fork")) as pool:
            list(pool.map(work, parts, [f"{target}/{core}" for core in range(CORES)]))

    return run


def _copy_and_digest(files: Sequence[str], target: str) -> None:
    """Copy the bytes and compute the digest and checksum that a record needs."""
    with open(target, "wb", buffering=0) as sink:
        for file in files:
            data = Path(file).read_bytes()
            hashlib.sha256(data).hexdigest()
            google_crc32c.value(data)
            sink.write(data)


def _gcsfs(source: str, target: str) -> None:
    """List a bucket and read it with gcsfs, 256 objects at a time; write nothing."""
    import fsspec
    import gcsfs

    fs = gcsfs.GCSFileSystem(token="anon", endpoint_url=os.environ["FSSPEC_GS_ENDPOINT_URL"])
    fs.invalidate_cache()
    paths = fs.find(fsspec.core.strip_protocol(source))
    for start in range(0, len(paths), _BATCH):
        fs.cat(paths[start : start + _BATCH])


def _obstore(source: str, target: str) -> None:
    """List an S3 bucket and read it with obstore, as `_gcsfs` does."""
    import obstore
    from obstore.store import S3Store

    store = S3Store.from_url(source, client_options={"allow_http": True})

    async def read() -> None:
        paths = [found["path"] for page in obstore.list(store) for found in page]
        for start in range(0, len(paths), _BATCH):
            got = (store.get_async(path) for path in paths[start : start + _BATCH])
            await asyncio.gather(*(each.bytes_async() for each in await asyncio.gather(*got)))

    asyncio.run(read())


_LIMITS: dict[str, Run] = {
    "limit: copy and SHA-256": _in_processes(_copy_and_digest),
    "limit: the graph in bare tf.data": _bare_graph,
    "limit: gcsfs, read and dropped": _gcsfs,
    "limit: obstore, read and dropped": _obstore,
}

CONTENDERS: dict[str, tuple[str, ...]] = {
    "header": ("ours", "limit: copy and SHA-256", *PEERS),
    "transform": ("ours", "limit: the graph in bare tf.data"),
    "gs": ("ours", "limit: gcsfs, read and dropped"),
    "s3": ("ours", "limit: obstore, read and dropped"),
}
"""Mode → contenders; the first is compared with each of the others."""


def make_copies(data: str, target: str, count: int, *, side: int | None = None) -> None:
    """Write `count` JPEGs made from those of `data`, each with a unique comment.

    Identical files would be duplicates, which ingest reads once.

    Args:
        data: folder of `label/image.jpg`.
        target: a new folder.
        count: number of files.
        side: shrink them to so many pixels of the shorter side; None: as they are.

    Raises:
        DataError: there is no JPEG in `data`.
    """
    originals = [
        (label, encoded)
        for path, label in list_files(data)
        if (encoded := Path(path).read_bytes()).startswith(b"\xff\xd8")
    ]
    if not originals:
        raise DataError(f"{data} has no JPEG in a folder of its label, as label/image.jpg.")
    if side:
        originals = [(label, _small(encoded, side)) for label, encoded in originals]
    for number in range(count):
        label, encoded = originals[number % len(originals)]
        comment = b"%020d" % number
        segment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
        path = Path(target, label, f"{number:07d}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded[:2] + segment + encoded[2:])


def _small(encoded: bytes, side: int) -> bytes:
    return check_image(encoded, IngestConfig(shrink=side, quality=88)).encoded
