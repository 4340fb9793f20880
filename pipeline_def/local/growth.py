"""What a run would take, step by step, for `inspect --plan WORKERS`.

Time, memory and disk grow in proportion to the images. `benchmarks.scale --fit` measures the slopes
and writes them to growth.json; a worker is a machine like the one that it ran on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from components.contract.example import EVAL, TEST, TRAIN
from components.contract.printable import describe_bytes, format_duration
from components.host.machine import fits_in_memory, gib
from components.images.options import CHANNELS
from components.ingest.shard_plan import ShardCount
from components.ingest.source.listing import Listing
from components.ingest.survey import Survey
from pipeline_def.config.config import Config
from pipeline_def.config.model import APPLICATIONS
from pipeline_def.steps import EVALUATOR, EXAMPLE_GEN, REPORT, STATISTICS_GEN, TRAINER, TRANSFORM

GROWTH_FILE = Path(__file__).with_name("growth.json")
"""Slopes: step → unit (see `Load.amounts`) → seconds, and how they were measured."""

# Values that all layers output per pixel and channel of the first stage, counted by Keras.
_OWN_OUTPUTS = {"cnn": (32, 5.47), "resnet9": (64, 6.51)}
_DIVIDED = (EXAMPLE_GEN.id, STATISTICS_GEN.id, TRANSFORM.id, EVALUATOR.id)


@dataclass(frozen=True)
class Load:
    """What the costs of a run depend on."""

    images: int
    trained: int
    """Images of train."""
    evaluated: int
    """Images of the split that the model is evaluated on."""
    held: int
    """Images that training may keep as pixels: those of train and eval."""
    read: float
    """MB of all files."""
    stored: float
    """MB of the images that ingest writes."""
    canonical: float
    """MB of the images that Transform writes."""
    values: float
    """Billions of values that the network's layers output for an image."""
    pixels: float
    """MB of an image as pixels."""
    epochs: float
    tasks: int
    """Shards of all splits, the most tasks that a step divides into."""
    test_tasks: int
    """Shards of the evaluated split."""

    def amounts(self) -> dict[str, dict[str, float]]:
        """Return step → unit → amount, in which the time of the step grows."""
        of_files = {"images": self.images, "MB": self.read}
        seen = self.trained * self.epochs
        return {
            EXAMPLE_GEN.id: of_files,
            STATISTICS_GEN.id: of_files,
            TRANSFORM.id: of_files,
            TRAINER.id: {"images": seen, "values": seen * self.values},
            EVALUATOR.id: {"images": self.evaluated, "values": self.evaluated * self.values},
            REPORT.id: {"images": self.images},
        }


class Planned(NamedTuple):
    """What a step takes."""

    step: str
    tasks: int
    """The most tasks that it divides into."""
    seconds: float
    read: float
    """MB."""
    written: float
    """MB."""


def read_growth() -> dict[str, Any]:
    """Read the measured slopes."""
    growth: dict[str, Any] = json.loads(GROWTH_FILE.read_text(encoding="utf-8"))
    return growth


def weigh(
    listing: Listing,
    survey: Survey,
    stored_fraction: float,
    config: Config,
    shards: Mapping[str, ShardCount],
) -> Load:
    """Return the load of a run with a resolved configuration."""
    size, images = listing.tally.size / 1e6, len(listing.files)
    side, storage = config.transform.stored_size, config.transform.storage
    area = sum(width * height for width, height in survey.sizes) / len(survey.sizes)
    # Resized images are taken to have as many bytes per pixel as their files.
    kept = size * stored_fraction * (1 if storage == "originals" else min(1, side**2 / area))
    trained, evaluated = listing.expected(TRAIN), listing.expected(TEST) or listing.expected(EVAL)
    plans = {group: of.plans for group, of in shards.items()}
    hashed = plans.get("hash", 0)
    return Load(
        images=images,
        trained=trained,
        evaluated=evaluated,
        held=trained + listing.expected(EVAL),
        read=size,
        stored=size * stored_fraction,
        canonical=side**2 * CHANNELS * images / 1e6 if storage == "raw" else kept,
        values=outputs_per_pixel(config) * (config.transform.size or 0) ** 2 / 1e9,
        pixels=side**2 * CHANNELS / 1e6,
        epochs=config.training.epochs,
        tasks=sum(plans.values()) + hashed * (len(listing.fractions) - 1),
        test_tasks=plans.get(TEST) or plans.get(EVAL) or hashed,
    )


def outputs_per_pixel(config: Config) -> float:
    """Return the number of values that all layers output per pixel of an image."""
    model = config.model
    if model.name in _OWN_OUTPUTS:
        width, each = _OWN_OUTPUTS[model.name]
        return (model.width or width) * each
    return float(APPLICATIONS[model.name].outputs)


def plan_steps(
    load: Load, growth: Mapping[str, Any], *, workers: int, memory: int
) -> list[Planned]:
    """Plan each step that grows with the images, and the others together.

    Args:
        load: what the run is about.
        growth: the slopes.
        workers: number of machines like the one the slopes were measured on.
        memory: bytes that training may use.
    """
    tasks = dict.fromkeys(_DIVIDED, load.tasks) | {EVALUATOR.id: load.test_tasks}
    traffic = _list_traffic(load, growth, cached=fits_in_memory(int(held_bytes(load)), memory))
    planned = [
        Planned(
            step,
            tasks.get(step, 1),
            _seconds(growth["steps"][step], amounts, _speed(tasks.get(step), workers, growth)),
            *traffic.get(step, (0.0, 0.0)),
        )
        for step, amounts in load.amounts().items()
    ]
    return [*planned, Planned("others", 1, growth["steps"]["others"]["start"], 0.0, 0.0)]


def held_bytes(load: Load) -> float:
    """Return the bytes of all images that training decodes."""
    return load.held * load.pixels * 1e6


def driver_bytes(load: Load, growth: Mapping[str, Any]) -> float:
    """Return the memory of the process that starts the run, without decoded images."""
    return float(growth["memory"]["start"] + growth["memory"]["images"] * load.images) * 1e6


def _speed(tasks: int | None, workers: int, growth: Mapping[str, Any]) -> float:
    """Return how many machines a step keeps busy; a task takes one core."""
    return 1.0 if tasks is None else min(workers, tasks / growth["cores"])


def _seconds(slopes: Mapping[str, float], amounts: Mapping[str, float], speed: float) -> float:
    """Return the seconds of a step, whose `serial` part per image stays with one machine."""
    growing = sum(slopes.get(unit, 0.0) * amount for unit, amount in amounts.items())
    serial = min(growing, slopes.get("serial", 0.0) * amounts["images"])
    return slopes["start"] + serial + (growing - serial) / speed


def _list_traffic(
    load: Load, growth: Mapping[str, Any], *, cached: bool
) -> dict[str, tuple[float, float]]:
    """Return step → MB that it reads and writes."""
    beside = growth["disk"]["images"] * load.images / 2
    stored, canonical = load.stored + beside, load.canonical + beside
    share = 1 / max(load.images, 1)
    passes = 1 if cached else max(1.0, load.epochs)
    return {
        EXAMPLE_GEN.id: (load.read, stored),
        STATISTICS_GEN.id: (stored, 0.0),
        TRANSFORM.id: (stored, canonical),
        TRAINER.id: (canonical * load.trained * share * passes, 0.0),
        EVALUATOR.id: (canonical * load.evaluated * share, 0.0),
    }


def describe_runner(load: Load, growth: Mapping[str, Any], *, workers: int) -> Iterator[str]:
    """Yield which runner suits that many workers, and what would leave some of them idle."""
    if workers == 1:
        yield "local_runner.py on one machine"
        return
    yield (
        "local_runner.py with Flink or Spark and a folder that all workers share, or kfp_runner.py "
        "with Dataflow, Flink or Spark and a bucket (beam_pipeline_args)"
    )
    if (most := load.tasks // growth["cores"]) < workers:
        yield (
            f"more than {max(most, 1):,} workers would have nothing to do: for more shards, lower "
            f"ingest.shard_mib and ingest.max_shard_images"
        )


def describe_totals(
    load: Load, growth: Mapping[str, Any], planned: Sequence[Planned], *, memory: int
) -> Iterator[tuple[str, str]]:
    """Yield rows of a title and a text: totals, and what they rest on."""
    yield "Time", f"about {format_duration(sum(row.seconds for row in planned))} for all steps"
    cached = fits_in_memory(int(held_bytes(load)), memory)
    pixels = (
        f"and {gib(held_bytes(load))} for decoded images" if cached else "and no decoded images"
    )
    yield (
        "Memory",
        f"{gib(driver_bytes(load, growth))} on the machine that starts the run, {pixels}",
    )
    yield "Disk", f"{describe_bytes(round(1e6 * sum(row.written for row in planned)))} of artifacts"
    traffic = describe_bytes(round(1e6 * sum(row.read for row in planned)))
    yield (
        "Egress",
        f"{traffic} if all steps read from a bucket elsewhere; with local_runner.py only "
        f"{describe_bytes(round(1e6 * load.read))}",
    )
    measured = growth["measured"]
    yield (
        "Assumes",
        f"each worker is like {measured['machine']}, idle and without a GPU, as measured on "
        f"{measured['date']}; training on one of them takes as long per value that the network's "
        f"layers output as cnn does",
    )
