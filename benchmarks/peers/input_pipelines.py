"""How fast the input pipelines of others read training images, one of them in a process.

Runs in an environment of the peer's own, so it imports nothing of this project:

    python benchmarks/peers/input_pipelines.py torch --data DIR --storage jpeg --size 224

DIR holds `files/<label>/<name>.jpg`, or `raw.npy` (uint8, [n, size, size, 3]) and `labels.npy`.
A peer that needs a format of its own writes it to `DIR/<peer>/` first, outside the timing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STORAGES = {
    "jpeg": "JPEG files of exactly the size, decoded",
    "crop": "larger JPEG files, a random crop of the size and a random flip",
    "original": "JPEG files of any size, the central square resized bilinearly",
    "raw": "uint8 records, no decoding",
}
TF_SHUFFLE = 10_000
"""Records in the shuffle buffer of tf.data."""
TF_SHARDS = 8
CORES = 2
WARM_UP = 3.0
"""Seconds, at least an epoch; tf.data takes them to choose its parallelism."""

Pixels = NDArray[np.uint8]
Batches = Iterable[tuple[Any, Any]]
Epoch = Callable[[], Batches]


@dataclass(frozen=True)
class Job:
    """What to read and how."""

    data: Path
    storage: str
    size: int
    """Side of the images of a batch, pixels."""
    batch: int
    workers: int
    """Threads or processes of the peer that decode; tf.data and Keras choose for themselves."""

    def files(self) -> list[Path]:
        """The JPEG files in the order of their labels and names."""
        return sorted((self.data / "files").glob("*/*.jpg"))

    def target(self, name: str) -> Path:
        """A path for what a peer converts, in a folder that exists."""
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        return path


class Samples(Sequence[tuple[Any, int]]):
    """JPEG bytes, or raw images as uint8 [size, size, 3], each with its label's number."""

    def __init__(self, job: Job) -> None:
        """Lists the files, or maps the array of raw images into memory."""
        if job.storage == "raw":
            self.images: Sequence[Path] | Pixels = np.load(job.data / "raw.npy", mmap_mode="r")
            self.labels = np.load(job.data / "labels.npy").tolist()
        else:
            self.images = job.files()
            names = sorted({path.parent.name for path in self.images})
            self.labels = [names.index(path.parent.name) for path in self.images]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.labels)

    def __getitem__(self, index: Any) -> Any:
        """The encoded or raw image of an index, and its label."""
        image = self.images[index]
        return image.read_bytes() if isinstance(image, Path) else image, self.labels[index]


def fill_image(job: Job, data: Any, out: Pixels) -> None:
    """Decode with simplejpeg and OpenCV, for peers that leave that to the user."""
    if job.storage == "raw":
        out[:] = data
        return
    from simplejpeg import decode_jpeg

    if job.storage == "jpeg":
        decode_jpeg(data, buffer=out)
        return
    image: Pixels = decode_jpeg(data)
    height, width = image.shape[:2]
    if job.storage == "crop":
        top, left = random.randint(0, height - job.size), random.randint(0, width - job.size)
        crop = image[top : top + job.size, left : left + job.size]
        out[:] = crop[:, ::-1] if random.random() < 0.5 else crop
        return
    import cv2

    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]
    cv2.resize(square, (job.size, job.size), dst=out, interpolation=cv2.INTER_LINEAR)


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
    if job.storage != "crop":
        return [fields.SimpleRGBImageDecoder()]
    # FFCV has no plain random crop; a fixed area and ratio make its resize a copy.
    side = _jpeg_side(job)
    crop = fields.RandomResizedCropRGBImageDecoder(
        shape, scale=((job.size / side) ** 2,) * 2, ratio=(1.0, 1.0)
    )
    return [crop, import_module("ffcv.transforms").RandomHorizontalFlip(0.5)]


def _write_beton(job: Job, path: Path) -> None:
    """Write FFCV's file; the bytes of JPEGs stay as they are, where FFCV would encode anew."""
    fields = import_module("ffcv.fields")
    image = fields.RGBImageField(write_mode="raw" if job.storage == "raw" else "jpg")
    if job.storage != "raw":
        image.encode = _encode_beton
    columns = {"image": image, "label": fields.IntField()}
    writer = import_module("ffcv.writer").DatasetWriter(str(path), columns, num_workers=1)
    writer.from_indexed_dataset(Samples(job))


def _encode_beton(destination: Any, data: bytes, malloc: Any) -> None:
    destination["mode"] = 0  # JPEG
    destination["width"], destination["height"] = _jpeg_size(data)
    destination["data_ptr"], storage = malloc(len(data))
    storage[:] = np.frombuffer(data, np.uint8)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return image.size


def _jpeg_side(job: Job) -> int:
    return _jpeg_size(job.files()[0].read_bytes())[0]


def dali_epochs(job: Job) -> Epoch:
    """NVIDIA DALI on the CPU: its file reader and decoders, over threads."""
    dali = import_module("nvidia.dali")
    pipeline = dali.Pipeline(
        batch_size=job.batch, num_threads=job.workers, device_id=None, prefetch_queue_depth=2
    )
    with pipeline:
        pipeline.set_outputs(*_dali_graph(job))
    pipeline.build()
    count = pipeline.reader_meta("files")["epoch_size"]

    def epoch() -> Iterator[tuple[Any, Any]]:
        for start in range(0, count, job.batch):
            images, labels = (output.as_array() for output in pipeline.run())
            rest = count - start  # the last batch is filled up with copies
            yield images[:rest], labels[:rest]

    return epoch


def _dali_graph(job: Job) -> tuple[Any, Any]:
    fn = import_module("nvidia.dali.fn")
    raw = job.storage == "raw"
    data, label = fn.readers.file(
        name="files",
        file_root=str(_raw_files(job) if raw else job.data / "files"),
        file_filters=["*.bin" if raw else "*.jpg"],
        shuffle_after_epoch=True,
        pad_last_batch=True,
    )
    if raw:
        return fn.reinterpret(data, shape=[job.size, job.size, 3], layout="HWC"), label
    if job.storage == "jpeg":
        return fn.decoders.image(data), label
    if job.storage == "crop":
        x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
        crop = fn.decoders.image_crop(data, crop=[job.size, job.size], crop_pos_x=x, crop_pos_y=y)
        return fn.flip(crop, horizontal=fn.random.coin_flip()), label
    shape = fn.peek_image_shape(data)
    types = import_module("nvidia.dali.types")
    side = import_module("nvidia.dali.math").min(shape[0], shape[1])
    side = fn.cast(side, dtype=types.FLOAT)
    square = fn.decoders.image_crop(data, crop_w=side, crop_h=side)
    size = [job.size, job.size]
    return fn.resize(square, size=size, interp_type=types.INTERP_LINEAR, antialias=False), label


def _raw_files(job: Job) -> Path:
    """A file of bare pixels for each raw image, in a folder for each label."""
    folder = job.target("dali/raw")
    if not folder.exists():
        for index, (image, label) in enumerate(Samples(job)):
            path = folder / f"{label:05d}" / f"{index:06d}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.tofile(path)
    return folder


class TorchImages:
    """A map-style dataset that makes whole batches, which DataLoader prefers if it can."""

    def __init__(self, job: Job) -> None:
        """Lists the images."""
        self.job = job
        self.samples = Samples(job)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.samples)

    def __getitems__(self, indices: list[int]) -> tuple[Any, Any]:
        """A batch of uint8 [n, size, size, 3] and its labels, as tensors."""
        torch: Any = import_module("torch")
        labels = torch.tensor([self.samples.labels[index] for index in indices])
        if self.job.storage == "raw":
            return torch.from_numpy(self.samples.images)[torch.tensor(indices)], labels
        images = torch.empty((len(indices), self.job.size, self.job.size, 3), dtype=torch.uint8)
        for index, out in zip(indices, images.numpy(), strict=True):
            fill_image(self.job, self.samples[index][0], out)
        return images, labels


def torch_epochs(job: Job) -> Epoch:
    """PyTorch's DataLoader over processes, with simplejpeg and OpenCV."""
    several = {"persistent_workers": True, "prefetch_factor": 4} if job.workers else {}
    loader = import_module("torch.utils.data").DataLoader(
        TorchImages(job),
        batch_size=job.batch,
        shuffle=True,
        num_workers=job.workers,
        collate_fn=_as_is,
        worker_init_fn=_one_thread,
        **several,
    )
    return lambda: loader


def _as_is(batch: Any) -> Any:
    return batch


def _one_thread(_: int) -> None:
    import cv2

    cv2.setNumThreads(0)


def grain_epochs(job: Job) -> Epoch:
    """Grain over processes, or over threads of one process if there are no workers."""
    grain = import_module("grain")
    samples = Samples(job)
    batches = (
        grain.MapDataset.source(samples)
        .shuffle(seed=0)
        .map(partial(_grain_image, job))
        .batch(job.batch)
        .repeat()
        # Counted in batches; the default of 500 would not fit into memory.
        .to_iter_dataset(grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=4))
    )
    if job.workers:
        options = grain.MultiprocessingOptions(num_workers=job.workers, per_worker_buffer_size=2)
        batches = batches.mp_prefetch(options)
    return partial(islice, iter(batches), math.ceil(len(samples) / job.batch))


def _grain_image(job: Job, sample: tuple[Any, int]) -> tuple[Pixels, int]:
    if job.storage == "raw":
        return sample
    image = np.empty((job.size, job.size, 3), np.uint8)
    fill_image(job, sample[0], image)
    return image, sample[1]


def tf_data_epochs(job: Job, *, cache: bool = False) -> Epoch:
    """tf.data with TFRecords and a map for each image; can keep decoded images in memory."""
    import tensorflow as tf

    folder = job.target(f"tf.data/{job.storage}")
    if not folder.exists():
        _write_tfrecords(job, folder)
    shards = tf.data.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=True)
    records = shards.interleave(
        tf.data.TFRecordDataset,
        cycle_length=TF_SHARDS,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    )
    parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": False}
    if cache:
        images = records.map(partial(_tf_image, job, cut=False), **parallel).cache()
        images = images.shuffle(TF_SHUFFLE)
        if job.storage == "crop":
            images = images.map(partial(_tf_cut, job), **parallel)
    else:
        images = records.shuffle(TF_SHUFFLE).map(partial(_tf_image, job, cut=True), **parallel)
    batches = images.batch(job.batch).repeat().prefetch(tf.data.AUTOTUNE)
    count = sum(1 for _ in records)
    return partial(islice, iter(batches), math.ceil(count / job.batch))


def _write_tfrecords(job: Job, folder: Path) -> None:
    import tensorflow as tf

    folder.mkdir(parents=True)
    writers = [tf.io.TFRecordWriter(f"{folder}/{shard:02d}.tfrecord") for shard in range(TF_SHARDS)]
    for index, (image, label) in enumerate(Samples(job)):
        data = image if isinstance(image, bytes) else image.tobytes()
        features = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[index % TF_SHARDS].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def _tf_image(job: Job, record: Any, *, cut: bool) -> tuple[Any, Any]:
    """A record's image and label; `cut` is whether to do the random cut as well."""
    import tensorflow as tf

    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    features["label"] = tf.io.FixedLenFeature([], tf.int64)
    fields = tf.io.parse_single_example(record, features)
    data, label = fields["image"], fields["label"]
    shape = [job.size, job.size, 3]
    if job.storage == "raw":
        return tf.reshape(tf.io.decode_raw(data, tf.uint8), shape), label
    if job.storage == "jpeg" or (job.storage == "crop" and not cut):
        return tf.io.decode_jpeg(data, channels=3), label
    height, width, _ = tf.unstack(tf.io.extract_jpeg_shape(data))
    if job.storage == "crop":
        top = tf.random.uniform([], maxval=height - job.size + 1, dtype=tf.int32)
        left = tf.random.uniform([], maxval=width - job.size + 1, dtype=tf.int32)
        image = tf.io.decode_and_crop_jpeg(data, [top, left, job.size, job.size], channels=3)
        return tf.image.random_flip_left_right(tf.ensure_shape(image, shape)), label
    side = tf.minimum(height, width)
    window = [(height - side) // 2, (width - side) // 2, side, side]
    image = tf.image.resize(tf.io.decode_and_crop_jpeg(data, window, channels=3), shape[:2])
    return tf.cast(tf.round(image), tf.uint8), label


def _tf_cut(job: Job, image: Any, label: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    crop = tf.image.random_crop(image, [job.size, job.size, 3])
    return tf.image.random_flip_left_right(crop), label


def keras_epochs(job: Job) -> Epoch:
    """Keras' image_dataset_from_directory, which makes float32 images; layers cut batches."""
    import tensorflow as tf
    import tf_keras

    if job.storage == "raw":
        raise SystemExit("input_peers: keras reads files; choose another --storage than raw.")
    crop = job.storage == "crop"
    side = _jpeg_side(job) if crop else job.size
    batches = tf_keras.utils.image_dataset_from_directory(
        str(job.data / "files"),
        image_size=(side, side),
        batch_size=job.batch,
        crop_to_aspect_ratio=job.storage == "original",
    )
    if crop:
        layers = tf_keras.layers
        cut = tf_keras.Sequential(
            [layers.RandomCrop(job.size, job.size), layers.RandomFlip("horizontal")]
        )
        batches = batches.map(
            lambda images, labels: (cut(images, training=True), labels), tf.data.AUTOTUNE
        ).prefetch(tf.data.AUTOTUNE)
    return lambda: batches


PEERS: dict[str, tuple[Callable[[Job], Epoch], str, int]] = {
    "ffcv": (ffcv_epochs, "ffcv", 2),
    "dali": (dali_epochs, "nvidia-dali-cuda120", 3),
    "torch": (torch_epochs, "torch", 3),
    "grain": (grain_epochs, "grain", 0),
    "tf.data": (tf_data_epochs, "tensorflow", 0),
    "tf.data-cache": (partial(tf_data_epochs, cache=True), "tensorflow", 0),
    "keras": (keras_epochs, "tf-keras", 0),
}
"""Each peer, the package whose version counts, and the workers that were best on two cores."""
RAW_WORKERS = {"torch": 0}
"""The best for raw images where it differs: passing them between processes costs most."""


def measure(epoch: Epoch, *, repeats: int, epochs: int) -> list[float]:
    """Images a second of each repeat, after at least one epoch to warm up."""
    end = time.perf_counter() + WARM_UP
    while _images(epoch) and time.perf_counter() < end:
        pass
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        images = sum(_images(epoch) for _ in range(epochs))
        rates.append(round(images / (time.perf_counter() - start), 1))
    return rates


def _images(epoch: Epoch) -> int:
    return sum(len(labels) for _, labels in epoch())


def checksum(epoch: Epoch) -> dict[str, Any]:
    """What an epoch holds, whatever its order: counts, labels, and a digest of all pixels."""
    digests: list[bytes] = []
    labels = 0
    first: Any = None
    for images, numbers in epoch():
        pixels = np.asarray(images)
        first = pixels[0] if first is None else first
        labels += int(np.asarray(numbers).sum())
        digests += [hashlib.sha256(image.astype(np.uint8).tobytes()).digest() for image in pixels]
    digest = hashlib.sha256(b"".join(sorted(digests))).hexdigest()
    return {
        "images": len(digests),
        "labels": labels,
        "dtype": str(first.dtype),
        "shape": first.shape,
        "pixels": digest,
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the images")
    storages = "; ".join(f"{name}: {text}" for name, text in STORAGES.items())
    parser.add_argument("--storage", choices=STORAGES, required=True, help=storages)
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=128, help="images a batch")
    parser.add_argument("--epochs", type=int, default=1, help="epochs a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, help="the peer's best on two cores unless given")
    parser.add_argument("--check", action="store_true", help="digest all pixels of an epoch")
    return parser.parse_args()


def main() -> None:
    """Measure one peer and print a line of JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    arguments = parse_arguments()
    source = arguments.data / ("raw.npy" if arguments.storage == "raw" else "files")
    if not source.exists():
        raise SystemExit(f"input_peers: {source} does not exist; give its folder as --data.")
    make, package, best = PEERS[arguments.peer]
    if arguments.storage == "raw":
        best = RAW_WORKERS.get(arguments.peer, best)
    workers = best if arguments.workers is None else arguments.workers
    job = Job(arguments.data, arguments.storage, arguments.size, arguments.batch, workers)
    epoch = make(job)
    result = {
        "peer": arguments.peer,
        "version": metadata.version(package),
        "storage": job.storage,
        "workers": workers,
        "images_per_second": measure(epoch, repeats=arguments.repeats, epochs=arguments.epochs),
        "checksum": checksum(epoch) if arguments.check else {},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
