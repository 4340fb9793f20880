"""Measures how many altered copies of images ingest recognizes, and how long a search takes.

    uv run -m benchmarks.near_duplicates --data DIR --images 400 --search 100000

Recall: each image of DIR against copies of itself. False pairs: groups among the images of DIR, to
look at, as some images are near duplicates. Search: random smooth pictures, none of which are
copies, so that only the time counts.
"""

import argparse
import io
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from benchmarks.measuring import options
from benchmarks.measuring.results import Figures, write_results
from components.images.transcode import THUMBPRINT_SIDE as SIDE
from components.images.transcode import make_thumbprint
from components.ingest.config import IngestConfig
from components.ingest.plan.near_duplicates import find_groups

_MODULE = "benchmarks.near_duplicates"

Alter = Callable[[Image.Image], Image.Image]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=1)
    parser.add_argument("--data", required=True, metavar="DIR")
    options.add_counts(parser, images=(400, "of DIR"), search=(100_000, "random pictures"))
    return parser


def _measure(arguments: argparse.Namespace) -> None:
    paths = sorted(path for path in Path(arguments.data).rglob("*") if path.is_file())
    chosen = paths[:: max(1, len(paths) // arguments.images)]
    images = [Image.open(path).convert("RGB") for path in chosen]
    recall = Figures(f"Copies recognized, of {len(images):,} images", ("copy", "recognized"))
    shares = measure_recall(images)
    for name, share in shares.items():
        recall.add(name, f"{share:.3f}")
    rows = np.stack([_make_row(image) for image in images])
    found = len(rows) - len(np.unique(find_groups(rows)))
    seconds, cpu = _time_search(arguments.search)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    search = Figures("Search", ("pictures", "groups joined", "seconds", "CPU seconds", "peak MiB"))
    search.add(f"{len(rows):,} of the folder", f"{found:,}", "", "", "")
    search.add(f"{arguments.search:,} random", "", f"{seconds:.1f}", f"{cpu:.1f}", f"{mib:,.0f}")
    for table in (recall, search):
        table.show()
    figures = {"recall": shares, "joined": found, "seconds": seconds, "cpu": cpu, "mib": mib}
    write_results(_MODULE, [recall, search], figures, arguments.json)


def measure_recall(images: Sequence[Image.Image]) -> Mapping[str, float]:
    """Return the kind of copy → the share of the images that are grouped with their copies."""
    originals = np.stack([_make_row(image) for image in images])
    shares = {}
    for name, alter in _make_copies().items():
        copies = np.stack([_make_row(alter(image)) for image in images])
        groups = find_groups(np.concatenate([originals, copies]))
        shares[name] = float(np.mean(groups[: len(images)] == groups[len(images) :]))
    return shares


def _make_copies() -> dict[str, Alter]:
    random = np.random.default_rng(0)

    def crop(image: Image.Image) -> Image.Image:
        left, top, right, bottom = random.uniform(0, 0.05, 4) * [*image.size, *image.size]
        return image.crop(
            (int(left), int(top), image.width - int(right), image.height - int(bottom))
        )

    return {
        "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
        "JPEG, quality 40": lambda image: _recompress(image, 40),
        "brightened by a quarter": lambda image: ImageEnhance.Brightness(image).enhance(1.25),
        "cropped by up to 5 % at each edge": crop,
    }


def _recompress(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def _make_row(image: Image.Image) -> NDArray[np.uint8]:
    picture = make_thumbprint(np.asarray(image), IngestConfig())
    return np.frombuffer(picture + bytes([min(*image.size, 255)]), np.uint8)


def _time_search(count: int) -> tuple[float, float]:
    """Return seconds by the clock and of the processor for a search among random pictures."""
    random = np.random.default_rng(1)
    rows = np.full((count, SIDE * SIDE + 1), 255, np.uint8)
    every = np.arange(SIDE)
    waves = np.cos(np.pi * np.arange(12)[:, None] * (every + 0.5) / SIDE).astype(np.float32)
    for start in range(0, count, 4096):
        part = rows[start : start + 4096, :-1]
        strength = random.normal(0, 30, (len(part), 12, 12)) / (1 + np.hypot(*np.ogrid[:12, :12]))
        pictures = waves.T @ strength.astype(np.float32) @ waves + 128
        part[:] = np.clip(pictures, 0, 255).reshape(len(part), -1)
    started, used = time.monotonic(), time.process_time()
    find_groups(rows)
    return time.monotonic() - started, time.process_time() - used


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _measure))
