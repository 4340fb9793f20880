"""Reads your own images in many ways, from single files to pixels in memory, one change each.

    uv run -m benchmarks.input_pipeline --data DIR
    uv run -m benchmarks.input_pipeline --data DIR --target-images-per-second 3000
    uv run -m benchmarks.input_pipeline --data DIR --gcs-latency-ms 30 --gcs-stream-mbps 160

Every rung reads the same images at the same batch size, and gives the same pixels, which is checked
first. The rungs take turns, so that a slow minute of the machine meets all of them. Prints a table
with the limits of the machine, and how long an accelerator of the given speed waits at each rung.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import options
from benchmarks.measuring.limits import COPY_LIMIT, DECODE_LIMIT
from benchmarks.measuring.process import QUIET, measure, say, take_turns
from benchmarks.measuring.results import Figures, Spread, ratio, write_results
from components.host.machine import available_cpus

if TYPE_CHECKING:
    # They load TensorFlow.
    from benchmarks.ladder.data import Material

_MODULE = "benchmarks.input_pipeline"

# Rungs whose rate stands for the accelerator's, the first that is measured.
_REFERENCES = ("reader indexed", "+ prefetch: reader streamed")

# With its default blocks of 64 MB, TensorFlow would make small files slower than necessary.
_BUCKET = {"GCS_READ_CACHE_BLOCK_SIZE_MB": "1"}


def _climb(arguments: argparse.Namespace) -> None:
    os.environ.update(QUIET)
    warnings.simplefilter("ignore", FutureWarning)
    images = options.fill_batches(arguments)
    from benchmarks.ladder.data import prepare

    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        folder = os.path.join(work, "images")
        say(f"preparing {images:,} images of {arguments.data}")
        material = prepare(arguments.data, folder, size=arguments.size, images=images)
        results = _measure(arguments, material)
    table = _tabulate(results)
    table.show()
    write_results(_MODULE, [table], results, arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--data", required=True, help="folder of images, as the pipeline takes it")
    options.add_counts(
        parser,
        size=(224, "side of the images, pixels"),
        batch=(128, "images per batch"),
        images=(3200, "of an epoch, at most"),
        epochs=(2, "of each repeat, which lasts --seconds to 10 s"),
    )
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement, at least")
    parser.add_argument("--rungs", help="only those whose name has one of these words, a,b,…")
    parser.add_argument(
        "--target-images-per-second",
        type=float,
        help="what the accelerator takes; default: 80 %% of what the reader indexed gives",
    )
    parser.add_argument(
        "--gcs-latency-ms", type=float, help="read from a Cloud Storage server with this latency"
    )
    parser.add_argument(
        "--gcs-stream-mbps", type=float, default=0, help="megabits/s of each download; 0: no limit"
    )
    return parser


def _measure(arguments: argparse.Namespace, material: Material) -> dict[str, Any]:
    """Measure the rungs and the limits on local files or a bucket."""
    task = {
        **{key: getattr(arguments, key) for key in ("batch", "epochs", "seconds")},
        "folder": material.root,
        "root": material.root,
        "target": arguments.target_images_per_second,
    }
    if arguments.gcs_latency_ms is None:
        return _take_turns(arguments, material, task, {})
    from benchmarks.gcs_server.tls_proxy import TlsGcsServer

    with TlsGcsServer(
        {"bucket": material.root},
        latency_ms=arguments.gcs_latency_ms,
        stream_mbps=arguments.gcs_stream_mbps,
    ) as server:
        environment = server.tensorflow_environment(Path(material.root).parent) | _BUCKET
        task |= {"root": "gs://bucket", "epochs": 1}
        results = _take_turns(arguments, material, task, environment)
    store = {"latency_ms": arguments.gcs_latency_ms, "stream_mbps": arguments.gcs_stream_mbps}
    return {**results, "store": store}


def _take_turns(
    arguments: argparse.Namespace,
    material: Material,
    task: dict[str, Any],
    environment: dict[str, str],
) -> dict[str, Any]:
    """Measure each rung and limit in fresh processes."""

    def measure_one(name: str) -> dict[str, Any]:
        words = ["-m", "benchmarks.ladder.rung", json.dumps(task | {"name": name})]
        figure: dict[str, Any] = measure(words, environment=environment)
        return figure

    from benchmarks.ladder.rungs import REMOTE_RUNGS, RUNGS

    rungs = {rung.name: rung for rung in (REMOTE_RUNGS if environment else RUNGS)}
    names = options.choose([*rungs], arguments.rungs)
    if not task["target"]:
        say("measuring our own reader first, whose rate is the accelerator's")
        reference = next(filter(names.__contains__, _REFERENCES), names[0])
        task["target"] = 0.8 * measure_one(reference)["images_per_second"]
    figures = take_turns(
        [*names, DECODE_LIMIT, COPY_LIMIT],
        arguments.repeats,
        measure_one,
        lambda figure: f"{figure['images_per_second']:,.0f} images/s",
    )
    columns = {
        name: {key: [figure[key] for figure in values] for key in values[0]}
        for name, values in figures.items()
    }
    return {
        "rungs": [
            {"name": name, "change": rungs[name].change, **columns[name]}
            for name in names
            if name in columns
        ],
        "limits": {name: columns[name]["images_per_second"] for name in (DECODE_LIMIT, COPY_LIMIT)},
        "accelerator_images_per_second": task["target"],
        "batch": arguments.batch,
        "images": material.images,
        "different": material.different,
        "size": material.size,
        "cores": available_cpus(),
    }


def _tabulate(results: Mapping[str, Any]) -> Figures:
    """Return the rungs and the limits as a table."""
    columns = ("rung", "images/s", "of the first", "CPU µs per image", "first batch")
    table = Figures(
        f"{results['images']:,} images ({results['different']:,} different) of "
        f"{results['size']} pixels, batches of {results['batch']}, {results['cores']} cores",
        (*columns, f"waiting at {results['accelerator_images_per_second']:,.0f}/s"),
    )
    first = Spread.of(results["rungs"][0]["images_per_second"])
    for rung in results["rungs"]:
        rate = Spread.of(rung["images_per_second"])
        table.add(
            rung["name"],
            rate.show(),
            "" if rate == first else ratio(rate, first),
            f"{Spread.of(rung['cpu_microseconds']).median:,.0f}",
            f"{Spread.of(rung['first_batch_seconds']).median:.2f} s",
            f"{Spread.of([100 * share for share in rung['wait_share']]).show(1)} %",
        )
    for name, values in results["limits"].items():
        table.add(name, Spread.of(values).show(), "", "", "", "")
    return table


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _climb))
