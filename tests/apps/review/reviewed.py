"""An output folder with a run whose suspects can be reviewed, written without a pipeline."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.contract.example import ENCODED, FILENAME, LABEL, LABEL_ID, SHA256
from components.contract.image_tables import SUSPECTS_FILE, Suspect, write_suspects
from components.records.record_index import write_indexed_shard
from components.records.shard_files import write_index
from pipeline_def.apps.review.app import make_app
from pipeline_def.apps.review.command import prepare
from pipeline_def.apps.review.options import ReviewOptions
from pipeline_def.runs.record import Data, Step, StepOutput
from tests.apps.serve.serving import running_app
from tests.files import write_files
from tests.local.run_samples import configure, write_run
from tests.pictures import COLOURS, encode, picture

SHARD = "data_tfrecord-00000-of-00001"
LABELS = sorted(COLOURS)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def draw_images(count: int) -> dict[str, bytes]:
    """Pictures in turn of each color, by their paths."""
    return {
        f"{LABELS[n % 3]}/{n:03d}.jpg": encode(picture(n, colour=LABELS[n % 3]), "JPEG")
        for n in range(count)
    }


def suspect(path: str, data: bytes, score: float, **fields: Any) -> Suspect:
    """Make a suspect of the image at `path`, whose label is its folder."""
    known: dict[str, Any] = {"reason": "label", "proposed": "red", "label": path.partition("/")[0]}
    return Suspect(digest(data), path, "train", score=score, **(known | fields))


def write_output(
    folder: Path,
    images: Mapping[str, bytes],
    suspects: Sequence[Suspect],
    labels: Sequence[str] = LABELS,
) -> Path:
    """Write images, shards, suspects and the record of their run; return the output folder."""
    data, output = folder / "images", folder / "out"
    examples, artifact = output / "artifacts" / "examples", output / "artifacts" / "suspects"
    artifact.mkdir(parents=True)
    write_files(data, images)
    rows: list[Any] = [
        {
            ENCODED: content,
            FILENAME: path,
            SHA256: digest(content),
            LABEL: path.split("/")[0],
            LABEL_ID: 0,
        }
        for path, content in images.items()
    ]
    shards = {SHARD: write_indexed_shard(str(examples), "train", SHARD, rows)}
    write_index(str(examples), {"train": shards}, labels={"train": dict.fromkeys(labels, 1)})
    write_suspects(str(artifact / SUSPECTS_FILE), suspects)
    steps = {
        "ImageExampleGen": Step(
            "done", outputs={"examples": StepOutput(str(examples), "Examples")}
        ),
        "ImageReport": Step(
            "done", outputs={"suspects": StepOutput(str(artifact), "ImageSuspects")}
        ),
    }
    configuration = configure(str(data))
    write_run(output, 1, configuration=configuration, steps=steps, data=Data(str(data)))
    return output


@contextlib.contextmanager
def reviewing(output: Path, **fields: Any) -> Iterator[int]:
    """Serve the review of an output folder; yield the port."""
    options = ReviewOptions(output=str(output), who="ann", **fields)
    prepared = prepare(options)
    assert prepared
    with running_app(make_app(*prepared, options), options) as port:
        yield port
