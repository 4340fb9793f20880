"""The server with a model of TensorFlow: metadata, heat maps, load."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving_load import Expected, put_load
from pipeline_def.local.server.command import load
from pipeline_def.local.server.versions import Versions
from tests.server.export import LABELS, SIZE, draw, export
from tests.server.serving import ask, instances, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "pushed"
    export(folder / "7")
    return folder


def test_metadata_answers_and_heat_maps(pushed: Path) -> None:
    [file] = draw(1)
    with running(Versions(str(pushed), load)) as port:
        _, metadata = ask(port, "/v1/models/images/metadata")
        _, answer = ask(port, body=instances(file))
        _, broken = ask(port, body=instances(file[:-40]))
        _, why = ask(port, body=instances(file, signature_name="explain"))
    of_default = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    tensor = of_default["inputs"]["image_bytes"]
    assert tensor["dtype"] == "DT_STRING"
    assert tensor["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    [refused] = broken["predictions"]
    assert refused["error"] == "PNG: damaged or cut off"
    assert (refused["label"], sum(refused["probabilities"])) == ("", 0)
    [row], [explained] = answer["predictions"], why["predictions"]
    assert row["labels"] == LABELS
    assert row["label"] == explained["label"] == LABELS[int(np.argmax(row["probabilities"]))]
    heat = np.array(explained["heat_map"])
    assert heat.shape == (SIZE, SIZE)
    assert heat.max() == pytest.approx(1)
    assert heat.min() >= 0
    assert explained["seen_bytes"].keys() == {"b64"}


def test_under_load_no_answer_is_wrong_or_missing_while_a_version_is_taken_up(pushed: Path) -> None:
    files, model = draw(50), load(str(pushed / "7"))
    rows: list[Any] = model.predict("serving_default", files)
    expected: list[Expected] = [
        dict(zip(LABELS, row["probabilities"], strict=True)) for row in rows
    ]
    versions = Versions(str(pushed), load)
    pusher = threading.Thread(target=_push, args=(pushed,))
    with running(versions) as port:
        pusher.start()
        put = put_load(port, files, expected, clients=32, seconds=6, bad_every=20)
        found = asyncio.run(put)
        pusher.join()
        # On a busy machine it is loaded later than the load ends.
        deadline = time.monotonic() + 60
        while versions.current.version != "8" and time.monotonic() < deadline:
            time.sleep(0.1)
    assert (found.wrong, found.lost) == ([], [])
    assert found.refused > 3
    assert len(found.seconds) > 80
    assert versions.current.version == "8"


def _push(folder: Path) -> None:
    time.sleep(1)
    shutil.copytree(folder / "7", folder.parent / "unfinished")
    (folder.parent / "unfinished").rename(folder / "8")
