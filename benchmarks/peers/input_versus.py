"""Compares the input pipeline with those of others and with the limits of this machine.

    uv run -m benchmarks.peers.input_versus --data DIR --storage jpeg \
        --python ffcv=/tmp/peers/ffcv/bin/python --python torch=/tmp/peers/torch/bin/python

DIR is laid out as `input_pipelines.py` says. Each figure comes from a process of its own, which
reads for some seconds unmeasured first; the contenders take turns. A peer is left out unless
`--python` says where its environment is; those of TensorFlow are in ours.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from rich.console import Console
from rich.table import Table

from benchmarks.limits import (
    Pixels,
    copy_batches,
    decode_files,
    decode_jpeg,
    measure,
    on_every_core,
    process_per_core,
)

_STORAGE = {"jpeg": "jpeg", "crop": "jpeg", "raw": "raw"}
_HERE = ("tf.data", "tf.data-cache", "keras")
_LIMIT = "limit"
_SECONDS = 2.0


def main() -> None:
    """Measure what the command line asks for; print a table."""
    arguments = _parser().parse_args()
    if arguments.contender:
        print(json.dumps(_measure_here(arguments)))
        return
    pythons = dict.fromkeys(_HERE, sys.executable) | dict(
        pair.split("=", 1) for pair in arguments.python
    )
    if arguments.peers is not None:
        pythons = {name: pythons[name] for name in arguments.peers.split(",") if name}
    names = [*_ours(arguments.storage), _LIMIT, *pythons]
    rates: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name in names:
            rates.setdefault(name, []).extend(_in_a_process(name, arguments, pythons.get(name)))
    _show(arguments, {name: values for name, values in rates.items() if values})
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rates, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.input_versus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, help="folder of the images")
    parser.add_argument("--storage", choices=["jpeg", "crop", "original", "raw"], required=True)
    parser.add_argument("--size", type=int, default=224, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=128, help="images per batch")
    parser.add_argument("--rounds", type=int, default=3, help="processes per contender")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--peers", help="only these, a,b,…; default: all that are to be had")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    return parser


def _ours(storage: str) -> tuple[str, ...]:
    """Name what this pipeline can do with a storage."""
    return {
        "jpeg": ("ours", "ours, streamed", "ours, decoded in memory"),
        "crop": ("ours", "ours, flip on the accelerator"),
        "raw": ("ours", "ours, decoded in memory"),
        "original": (),
    }[storage]


def _in_a_process(name: str, arguments: argparse.Namespace, python: str | None) -> list[float]:
    """Return images per second of a contender; none if it fails."""
    options = [f"--{key}={getattr(arguments, key)}" for key in ("data", "storage", "size", "batch")]
    if python:
        script = str(Path(__file__).with_name("input_pipelines.py"))
        command = [python, script, name, *options, "--repeats=1", *_epochs(arguments)]
    else:
        command = [
            sys.executable,
            "-m",
            "benchmarks.peers.input_versus",
            "--contender",
            name,
            *options,
        ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{name}: {(done.stderr.strip() or 'failed').splitlines()[-1]}", file=sys.stderr)
        return []
    result = json.loads(done.stdout.strip().splitlines()[-1])
    rates: list[float] = result["images_per_second"] if isinstance(result, dict) else [result]
    print(f"{name}: {rates[-1]:,.0f}", file=sys.stderr, flush=True)
    return rates


def _epochs(arguments: argparse.Namespace) -> list[str]:
    """Let a peer that reads pixels, or tiny images, go on for seconds, too."""
    fast = arguments.storage == "raw" or arguments.size <= 64
    return [f"--epochs={20 if arguments.storage == 'raw' else 4 if fast else 3}"]


def _show(arguments: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    title = f"{arguments.storage} {arguments.size}, batches of {arguments.batch}"
    table = Table("contender", "images/s", "range", "of the limit", "ours is", title=title)
    middles = {name: statistics.median(values) for name, values in rates.items()}
    best = max((middles[name] for name in _ours(arguments.storage)), default=0.0)
    for name in sorted(rates, key=lambda name: -middles[name]):
        table.add_row(
            name,
            f"{middles[name]:,.0f}",
            f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}",
            f"{middles[name] / middles[_LIMIT]:.2f}",
            f"{best / middles[name]:.2f} x",
        )
    Console(width=110).print(table)


def _measure_here(arguments: argparse.Namespace) -> float:
    if arguments.contender == _LIMIT:
        return _measure_limit(arguments)
    batches = _batches(arguments)

    def take() -> int:
        next(batches)
        return int(arguments.batch)

    measure(take, _SECONDS)
    return measure(take, _SECONDS)


def _batches(arguments: argparse.Namespace) -> Iterator[Any]:
    """Return endless batches of this pipeline."""
    from benchmarks.ladder import FEATURE_SPEC
    from components.transform.config import TransformConfig
    from pipeline_def.config.input import InputConfig
    from pipeline_def.data.dataset import make_dataset
    from pipeline_def.data.order import TrainingOrder
    from pipeline_def.data.shards import Shards

    storage = _STORAGE[arguments.storage]
    uri = _shards(arguments, storage)
    margin = 256 - arguments.size if arguments.storage == "crop" else 0
    how = arguments.contender.partition(", ")[2]
    dataset = make_dataset(
        Shards.of_pattern(f"{uri}/Split-train/*"),
        config=TransformConfig(size=arguments.size, margin=margin, storage=storage),  # type: ignore[arg-type]
        feature_spec=FEATURE_SPEC,
        batch_size=arguments.batch,
        options=InputConfig(
            cache="decoded" if "memory" in how else "none",
            reader="streamed" if how == "streamed" else "indexed",
        ),
        order=TrainingOrder(seed=1, flip=arguments.storage == "crop" and not how),
    )
    return iter(dataset)


def _files(arguments: argparse.Namespace) -> list[Path]:
    return sorted(Path(arguments.data, "files").glob("*/*"))


def _shards(arguments: argparse.Namespace, storage: str) -> str:
    """Write what Transform would write, once."""
    from benchmarks.ladder_data import write_shards

    uri = f"{arguments.data}/ours-{storage}"
    if not os.path.exists(f"{uri}/index.json"):
        if storage == "raw":
            pixels = np.load(f"{arguments.data}/raw.npy", mmap_mode="r")
            labels = np.load(f"{arguments.data}/labels.npy").tolist()
            images = ((pixels[i].tobytes(), label) for i, label in enumerate(labels))
            write_shards(uri, images, len(labels))
        else:
            files = _files(arguments)
            labels = sorted({path.parent.name for path in files})
            encoded = ((path.read_bytes(), labels.index(path.parent.name)) for path in files)
            write_shards(uri, encoded, len(files))
    return uri


def _measure_limit(arguments: argparse.Namespace) -> float:
    """Return images per second of every core, each in a process that does nothing else."""
    limit = functools.partial(_limit_of_core, arguments)
    with process_per_core() as pool:
        # Unmeasured: processes start at different times.
        on_every_core(pool, limit)
        return on_every_core(pool, limit)


def _limit_of_core(arguments: argparse.Namespace) -> float:
    return measure(_limit_work(arguments), _SECONDS)


def _limit_work(arguments: argparse.Namespace) -> Callable[[], int]:
    """Return what does the least that must be done for some images, and says for how many."""
    cv2.setNumThreads(0)
    out = np.empty((arguments.batch, arguments.size, arguments.size, 3), np.uint8)
    if arguments.storage == "raw":
        pixels = np.array(np.load(f"{arguments.data}/raw.npy", mmap_mode="r")[: 8 * len(out)])
        return functools.partial(copy_batches, pixels, out)
    files = [path.read_bytes() for path in _files(arguments)[:3200]]
    decode = {"jpeg": decode_jpeg, "crop": _decode_crop, "original": _decode_square}
    some = min(256, len(files))
    return lambda: decode_files(random.sample(files, some), out, decode[arguments.storage])


def _decode_crop(file: bytes, out: Pixels) -> None:
    image = simplejpeg.decode_jpeg(file, "RGB")
    size = len(out)
    height, width = image.shape[:2]
    top, left = random.randrange(height - size + 1), random.randrange(width - size + 1)
    out[:] = image[top : top + size, left : left + size]


def _decode_square(file: bytes, out: Pixels) -> None:
    image = simplejpeg.decode_jpeg(file, "RGB")
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]
    cv2.resize(square, out.shape[:2], dst=out, interpolation=cv2.INTER_LINEAR)


if __name__ == "__main__":
    main()
