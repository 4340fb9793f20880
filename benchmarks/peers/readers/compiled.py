"""Peers that decode with compiled code of their own, over threads: FFCV and DALI."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.readers.job import (
    ASPECTS,
    ENCODED,
    LABEL,
    MIN_AREA,
    SHUFFLE,
    Batch,
    Epoch,
    Job,
    Samples,
)


def ffcv_epochs(job: Job) -> Epoch:
    """FFCV: one file in the system's page cache, compiled loops over threads."""
    loader = import_module("ffcv.loader")
    path = job.target(f"ffcv/{job.storage}.beton")
    if not path.exists():
        _write_beton(job, path)
    label = import_module("ffcv.fields.decoders").IntDecoder()
    epochs = loader.Loader(
        str(path),
        batch_size=job.batch,
        num_workers=job.workers,
        os_cache=True,
        order=loader.OrderOption.RANDOM,
        drop_last=False,
        pipelines={"image": _ffcv_operations(job), "label": [label]},
    )
    return lambda: epochs


def _ffcv_operations(job: Job) -> list[Any]:
    fields = import_module("ffcv.fields.rgb_image")
    if job.storage == "jpeg":
        return [fields.SimpleRGBImageDecoder()]
    shape = (job.size, job.size)
    crop = fields.RandomResizedCropRGBImageDecoder(shape, scale=(MIN_AREA, 1.0), ratio=ASPECTS)
    return [crop, import_module("ffcv.transforms").RandomHorizontalFlip(0.5)]


def _write_beton(job: Job, path: Path) -> None:
    """Write FFCV's file with the bytes of the JPEGs, which FFCV would encode again."""
    fields = import_module("ffcv.fields")
    image = fields.RGBImageField(write_mode="jpg")
    image.encode = _encode_beton
    columns = {"image": image, "label": fields.IntField()}
    writer = import_module("ffcv.writer").DatasetWriter(str(path), columns, num_workers=1)
    writer.from_indexed_dataset(Samples(job))


def _encode_beton(destination: Any, data: Any, malloc: Any) -> None:
    from PIL import Image

    destination["mode"] = 0  # JPEG
    with Image.open(io.BytesIO(data.tobytes())) as image:
        destination["width"], destination["height"] = image.size
    destination["data_ptr"], storage = malloc(len(data))
    storage[:] = data


def dali_epochs(job: Job) -> Epoch:
    """NVIDIA DALI on the CPU: its TFRecord reader on our own shards, over threads."""
    dali = import_module("nvidia.dali")
    pipeline = dali.Pipeline(
        batch_size=job.batch, num_threads=job.workers, device_id=None, prefetch_queue_depth=2
    )
    with pipeline:
        pipeline.set_outputs(*_dali_graph(job))
    pipeline.build()
    count = pipeline.reader_meta("images")["epoch_size"]

    def epoch() -> Iterator[Batch]:
        for start in range(0, count, job.batch):
            images, labels = (output.as_array() for output in pipeline.run())
            rest = count - start  # the last batch is filled up with copies
            yield images[:rest], labels[:rest]

    return epoch


def _dali_graph(job: Job) -> tuple[Any, Any]:
    fn, tfrec = import_module("nvidia.dali.fn"), import_module("nvidia.dali.tfrecord")
    records = fn.readers.tfrecord(
        name="images",
        path=[str(shard) for shard in job.shards()],
        index_path=_write_indices(job),
        features={
            ENCODED: tfrec.FixedLenFeature((), tfrec.string, ""),
            LABEL: tfrec.FixedLenFeature([1], tfrec.int64, 0),
        },
        random_shuffle=True,
        initial_fill=SHUFFLE,
        pad_last_batch=True,
    )
    if job.storage == "jpeg":
        return fn.decoders.image(records[ENCODED]), records[LABEL]
    types = import_module("nvidia.dali.types")
    part = fn.decoders.image_random_crop(
        records[ENCODED], random_area=[MIN_AREA, 1.0], random_aspect_ratio=list(ASPECTS)
    )
    size = [job.size, job.size]
    resized = fn.resize(part, size=size, interp_type=types.INTERP_LINEAR, antialias=False)
    return fn.flip(resized, horizontal=fn.random.coin_flip()), records[LABEL]


def _write_indices(job: Job) -> list[str]:
    """Write where each record lies, as DALI's `tfrecord2idx` does."""
    paths = []
    for shard in job.shards():
        path = job.target(f"dali/{job.storage}/{shard.name}")
        path.write_text("".join(f"{start} {size}\n" for start, size in _places(shard)))
        paths.append(str(path))
    return paths


def _places(shard: Path) -> Iterator[tuple[int, int]]:
    """Yield start and size of a shard's records, with their lengths and checksums."""
    start, end = 0, shard.stat().st_size
    with shard.open("rb") as file:
        while start < end:
            file.seek(start)
            [length] = struct.unpack("<Q", file.read(8))
            yield start, length + 16
            start += length + 16
