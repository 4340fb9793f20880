"""Measures the rungs of the input benchmark in a separate process; prints JSON.

The process is separate because TensorFlow reads the address of a bucket's server on import. Each
rung runs in a further process, forked from this one while TensorFlow is imported but still idle.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.ladder.rung import RungMeasurement, RungProcess
from benchmarks.measuring.limits import (
    COPY_LIMIT,
    DECODE_LIMIT,
    copy_limit,
    decode_limit,
    on_every_core,
    process_per_core,
)
from benchmarks.measuring.process import Progress, say
from components.contract.artifact_files import on_disk
from components.contract.errors import ConfigurationError
from components.host.machine import available_cpus

if TYPE_CHECKING:
    # It loads TensorFlow, which the processes of the limits would do, too.
    from benchmarks.ladder.data import Material

Processes = dict[str, RungProcess]


def main() -> None:
    """Measure the task in the only argument, which is JSON."""
    from benchmarks.ladder.data import Material

    options = json.loads(sys.argv[1])
    material = Material.load(options["folder"], options["root"])
    local = Material.load(options["folder"], options["folder"])
    rungs = choose(options["rungs"], remote=not on_disk(material.root))
    batch, seconds = options["batch"], options["seconds"]
    measurements = [RungMeasurement(rung, material, local, batch, seconds) for rung in rungs]
    with _processes(measurements) as processes:
        facts = _start(measurements, processes)
        steps = options["epochs"] * material.images // batch
        # After all rounds, each rung feeds a simulated accelerator.
        limits = _limits(local, seconds)
        turns = options["repeats"] * (2 * len(rungs) + len(limits))
        progress = Progress(turns, kinds=len(rungs) + len(limits))
        rates, times = _measure_all(processes, limits, steps, options["repeats"], progress)
        target = options["target"] or 0.8 * _reference(rates)
        for name in processes:
            facts[name]["images_per_second"] = rates[name]
            facts[name]["cpu_microseconds"] = times[name]
            facts[name]["wait_share"] = []
        for _ in range(options["repeats"]):
            for name, process in processes.items():
                waited = process.ask("wait share", steps, target)
                facts[name]["wait_share"].append(waited)
                progress.report(f"{name}: waiting {waited:.1%}")
    results = {
        "rungs": list(facts.values()),
        "limits": {name: rates[name] for name in (DECODE_LIMIT, COPY_LIMIT)},
        "accelerator_images_per_second": target,
        **{key: options[key] for key in ("batch", "epochs", "repeats")},
        "images": material.images,
        "size": material.size,
        "cores": available_cpus(),
    }
    print(json.dumps(results))


def choose(words: str | None, *, remote: bool) -> list[Any]:
    """Return the rungs whose name contains one of the comma-separated `words`.

    Raises:
        ConfigurationError: no rung matches.
    """
    from benchmarks.ladder.rungs import REMOTE_RUNGS, RUNGS

    rungs = REMOTE_RUNGS if remote else RUNGS
    wanted = words.split(",") if words else [""]
    if chosen := [rung for rung in rungs if any(word in rung.name for word in wanted)]:
        return chosen
    names = ", ".join(rung.name for rung in rungs)
    raise ConfigurationError(f"no rung is named like '{words}'; the rungs are: {names}")


@contextmanager
def _processes(measurements: list[RungMeasurement]) -> Iterator[Processes]:
    """Fork a process for each rung, and end them."""
    processes: Processes = {}
    try:
        for measurement in measurements:
            name = measurement.rung.name
            processes[name] = RungProcess(name, measurement.prepare)
        yield processes
    finally:
        for process in processes.values():
            process.end()


def _start(measurements: list[RungMeasurement], processes: Processes) -> dict[str, dict[str, Any]]:
    """Start each rung, check its pixels, and return its description."""
    facts: dict[str, dict[str, Any]] = {}
    expected = next(iter(processes.values())).ask("expected")
    for measurement in measurements:
        rung = measurement.rung
        say(f"starting: {rung.name}")
        process = processes[rung.name]
        facts[rung.name] = {
            "name": rung.name,
            "change": rung.change,
            "kind": rung.kind,
            "first_batch_seconds": process.ask("first batch"),
            "pixels": process.ask("pixels", expected),
        }
    return facts


def _limits(material: Material, seconds: float) -> dict[str, Callable[[], float]]:
    """Return a function that measures each limit on one core."""
    files = tuple(material.files("files")[: material.different])
    return {
        DECODE_LIMIT: functools.partial(decode_limit, files, material.size, seconds),
        COPY_LIMIT: functools.partial(copy_limit, material.size, seconds),
    }


def _measure_all(
    processes: Processes,
    limits: Mapping[str, Callable[[], float]],
    steps: int,
    repeats: int,
    progress: Progress,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return images per second of every rung and limit, by round; they take turns.

    And the CPU time of an image of each rung, microseconds.
    """
    rates: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}

    def ask(name: str) -> float:
        rate, used = processes[name].ask("rate", steps)
        times.setdefault(name, []).append(used)
        return float(rate)

    turns: dict[str, Callable[[], float]] = {}
    turns |= {name: functools.partial(ask, name) for name in processes}
    with process_per_core() as pool:
        for name, limit in limits.items():
            turns[name] = functools.partial(on_every_core, pool, limit)
            turns[name]()
        for _ in range(repeats):
            for name, turn in turns.items():
                rate = turn()
                rates.setdefault(name, []).append(rate)
                progress.report(f"{name}: {rate:,.0f} images/s")
    return rates, times


def _reference(rates: dict[str, list[float]]) -> float:
    """Return the rate of our own reader without a cache."""
    for name in ("reader indexed", "+ prefetch: reader streamed", *rates):
        if name in rates:
            return float(np.median(rates[name]))
    raise ValueError("nothing was measured")


if __name__ == "__main__":
    main()
