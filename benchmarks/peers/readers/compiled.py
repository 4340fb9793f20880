"""Peers that decode with code of their own, over threads: FFCV and DALI."""

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
    """FFCV: one file that the system keeps in memory, compiled loops over threads."""
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
    shape = (job.size, job.size)
    if job.storage == "original":
        return [fields.CenterCropRGBImageDecoder(shape, ratio=1)]
    if job.storage not in ("crop", "window"):
        return [fields.SimpleRGBImageDecoder()]
    scale, ratio = (MIN_AREA, 1.0), ASPECTS
    if job.storage == "crop":
        # FFCV has no plain random crop; a fixed area and ratio make its resize a copy.
        side, _ = _jpeg_size(Samples(job).image(0))
        scale, ratio = ((job.size / side) ** 2,) * 2, (1.0, 1.0)
    crop = fields.RandomResizedCropRGBImageDecoder(shape, scale=scale, ratio=ratio)
    return [crop, import_module("ffcv.transforms").RandomHorizontalFlip(0.5)]


def _write_beton(job: Job, path: Path) -> None:
    """Write FFCV's file; the bytes of JPEGs stay as they are, where FFCV would encode anew."""
    fields = import_module("ffcv.fields")
    image = fields.RGBImageField(write_mode="raw" if job.is_raw else "jpg")
    if not job.is_raw:
        image.encode = _encode_beton
    columns = {"image": image, "label": fields.IntField()}
    writer = import_module("ffcv.writer").DatasetWriter(str(path), columns, num_workers=1)
    writer.from_indexed_dataset(Samples(job))


def _encode_beton(destination: Any, data: Any, malloc: Any) -> None:
    destination["mode"] = 0  # JPEG
    destination["width"], destination["height"] = _jpeg_size(data)
    destination["data_ptr"], storage = malloc(len(data))
    storage[:] = data


def _jpeg_size(data: Any) -> tuple[int, int]:
    from PIL import Image

    with Image.open(io.BytesIO(data.tobytes())) as image:
        return image.size


def dali_epochs(job: Job) -> Epoch:
    """NVIDIA DALI on the CPU: its reader of TFRecord, on our own shards, over threads."""
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
    return _dali_images(job, records[ENCODED]), records[LABEL]


def _write_indices(job: Job) -> list[str]:
    """Write where each record lies, as DALI's `tfrecord2idx` does."""
    paths = []
    for shard in job.shards():
        path = job.target(f"dali/{job.storage}/{shard.name}")
        path.write_text("".join(f"{start} {size}\n" for start, size in _places(shard)))
        paths.append(str(path))
    return paths


def _places(shard: Path) -> Iterator[tuple[int, int]]:
    """Yield start and size of the records of a shard, with their lengths and checksums."""
    start, end = 0, shard.stat().st_size
    with shard.open("rb") as file:
        while start < end:
            file.seek(start)
            [length] = struct.unpack("<Q", file.read(8))
            yield start, length + 16
            start += length + 16


def _dali_images(job: Job, data: Any) -> Any:
    fn = import_module("nvidia.dali.fn")
    if job.is_raw:
        return fn.reinterpret(data, shape=[job.size, job.size, 3], layout="HWC")
    if job.storage == "jpeg":
        return fn.decoders.image(data)
    if job.storage == "crop":
        x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
        crop = fn.decoders.image_crop(data, crop=[job.size, job.size], crop_pos_x=x, crop_pos_y=y)
        return fn.flip(crop, horizontal=fn.random.coin_flip())
    types, size = import_module("nvidia.dali.types"), [job.size, job.size]
    if job.storage == "window":
        part = fn.decoders.image_random_crop(
            data, random_area=[MIN_AREA, 1.0], random_aspect_ratio=list(ASPECTS)
        )
        resized = fn.resize(part, size=size, interp_type=types.INTERP_LINEAR, antialias=False)
        return fn.flip(resized, horizontal=fn.random.coin_flip())
    shape = fn.peek_image_shape(data)
    side = import_module("nvidia.dali.math").min(shape[0], shape[1])
    side = fn.cast(side, dtype=types.FLOAT)
    square = fn.decoders.image_crop(data, crop_w=side, crop_h=side)
    return fn.resize(square, size=size, interp_type=types.INTERP_LINEAR, antialias=False)
