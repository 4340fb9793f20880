"""What the rungs say: where the time goes, which rung to stand on, and the config for it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.limits import COPY_LIMIT, DECODE_LIMIT
from components.contract.machine import available_memory, gib
from components.storage.artifact_files import on_disk
from pipeline_def.data.cache import fits_in_memory

_OWN_RATE = "reader indexed"
_STREAMED = "+ prefetch: reader streamed"
_DECODED = "cache decoded"
_ENCODED = "cache encoded"
_RAW = "storage raw"

# A rung this close to a limit is held up by what the limit measures.
_NEAR = 0.6
# Of the table, where no terminal says how wide it is.
_LINE = 120


def judge(results: Mapping[str, Any], *, target: float | None) -> dict[str, Any]:
    """Return the `verdict`, sentences; the name of the rung to use; the `recommended` YAML.

    Args:
        results: as `ladder_run` prints them, with `found` and `data`.
        target: images per second that the accelerator takes, if the user has said so.
    """
    rates = {
        rung["name"]: statistics.median(rung["images_per_second"]) for rung in results["rungs"]
    }
    pixels = results["found"] * results["size"] ** 2 * 3
    name, reason = _choose(rates, pixels, target, remote="store" in results)
    limits = {limit: statistics.median(values) for limit, values in results["limits"].items()}
    verdict = [
        *_explain_files(rates),
        _bottleneck(name, rates, limits, target),
        f"Recommended: {name}, as {reason}.",
    ]
    return {"verdict": verdict, "use": name, "recommended": _config(results, name, verdict)}


def _choose(
    rates: Mapping[str, float], pixels: int, target: float | None, *, remote: bool
) -> tuple[str, str]:
    """Return the rung to use and the reason for it."""
    plain = _STREAMED if remote or _OWN_RATE not in rates else _OWN_RATE
    available = available_memory()
    size = f"the pixels of all images take {gib(pixels)}, and {gib(available)} of memory are free"
    if target and rates.get(plain, 0) * 0.9 >= target and not remote:
        return plain, f"it gives more than the {target:,.0f} images/s that are needed"
    if fits_in_memory(pixels, available) and _DECODED in rates:
        return _DECODED, size
    if target and _RAW in rates and rates[_RAW] > rates.get(plain, 0):
        return _RAW, f"{plain} is too slow for {target:,.0f} images/s; {size}"
    if _DECODED not in rates:
        return plain, "no cache was measured"
    return plain, f"{size}, too little for a cache of pixels"


def _explain_files(rates: Mapping[str, float]) -> list[str]:
    """Say what files cost, next to records that are decoded in the same way."""
    lines = []
    originals, resized = (
        rates.get("originals, resized every epoch"),
        rates.get("files, parallel map"),
    )
    if originals and resized:
        lines.append(
            f"Resizing once: {resized / originals:.1f} x, before anything else changes "
            f"({originals:,.0f} to {resized:,.0f} images/s)."
        )
    files, records = rates.get("files one by one"), rates.get("TFRecord, sequential")
    if files and records:
        saved = 1e6 / files - 1e6 / records
        lines.append(
            f"Bundling: opening and reading a file of its own costs {saved:,.0f} µs an image; "
            f"records in sequence are {records / files:.1f} x as fast as files one by one."
        )
    return lines


def _bottleneck(
    name: str, rates: Mapping[str, float], limits: Mapping[str, float], target: float | None
) -> str:
    rate = rates[name]
    if target and rate >= target:
        return (
            f"Bottleneck: the consumer. {name} gives {rate:,.0f} images/s, the accelerator takes "
            f"{target:,.0f}."
        )
    if name in (_DECODED, _RAW):
        share = rate / limits[COPY_LIMIT]
        return f"Bottleneck: copying. {name} gives {rate:,.0f} images/s, {share:.2f} of the limit."
    share = rate / limits[DECODE_LIMIT]
    cause = "decoding" if share >= _NEAR else "requests and parsing"
    return f"Bottleneck: {cause}. {name} gives {rate:,.0f} images/s, {share:.2f} of the limit."


def _config(results: Mapping[str, Any], name: str, verdict: list[str]) -> str:
    """Return YAML for `local_runner.py --config`, with the reasons as comments."""
    cache = {_DECODED: "decoded", _ENCODED: "encoded"}.get(name, "none")
    reader = "streamed" if name == _STREAMED else "auto"
    data = results["data"]
    config = {
        "data": os.path.abspath(data) if on_disk(data) else data,
        "transform": {
            "size": results["size"],
            "storage": "raw" if name == _RAW else "jpeg",
        },
        "input": {"cache": cache, "reader": reader},
        "training": {"batch_size": results["batch"]},
    }
    comments = "".join(f"# {line}\n" for line in verdict)
    return f"{comments}{yaml.safe_dump(config, sort_keys=False)}"


def show(results: Mapping[str, Any]) -> None:
    """Print the table and the verdict."""
    accelerator = results["accelerator_images_per_second"]
    table = Table(
        "rung",
        "images/s",
        "range",
        "of the first",
        "first batch",
        f"waits at {accelerator:,.0f}/s",
        title=f"{results['images']:,} images of {results['size']} px, {results['different']:,} "
        f"different; batches of {results['batch']}; {results['cores']} cores",
    )
    first = statistics.median(results["rungs"][0]["images_per_second"])
    for rung in results["rungs"]:
        values = rung["images_per_second"]
        middle = statistics.median(values)
        table.add_row(
            rung["name"],
            f"{middle:,.0f}",
            f"{min(values):,.0f} to {max(values):,.0f}",
            f"{middle / first:,.1f} x",
            f"{rung['first_batch_seconds']:.2f} s",
            f"{rung['wait_share']:.1%}",
        )
    for name, values in results["limits"].items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        table.add_row(name, f"{statistics.median(values):,.0f}", spread, "", "", "")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_LINE)
    console.print(table)
    for line in results["verdict"]:
        console.print(line, soft_wrap=True)
