"""The server with a model of TensorFlow: heat maps, and under attack."""

import contextlib
import gc
import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.prediction import LARGE_AT_ONCE
from pipeline_def.apps.serve.versions import Versions
from tests.apps.serve.serving import ask, instances, running
from tests.pictures import encode, turned
from tests.repository import ROOT

pytestmark = pytest.mark.slow

_SIDE = 6300
# As `serve --help` states it.
_MOST_BYTES = 48 * _SIDE**2 * LARGE_AT_ONCE
# Decoders hold the interpreter lock: for 0.3 s that of WebP, on a busy machine.
_DECODER_SECONDS = 1.0


SIZE = 16
LABELS = ["a", "b", "c"]


def export(folder: Path) -> None:
    """Write a small model with the signatures that every exported model has."""
    import tensorflow as tf
    import tf_keras

    from components.contract.example import ENCODED
    from components.images.canonical import canonicalize
    from components.images.options import TransformConfig
    from components.trainer.export.signatures import Classifier, make_signatures, save_atomically

    # Some first weights explain nothing, and their heat maps are empty.
    tf_keras.utils.set_random_seed(0)
    images = tf_keras.layers.Input([SIZE, SIZE, 3], dtype=tf.uint8)
    features = tf_keras.layers.Conv2D(8, 3, activation="relu")(
        tf_keras.layers.Rescaling(1 / 255)(images)
    )
    logits = tf_keras.layers.Dense(3)(tf_keras.layers.Flatten()(features))
    model = tf_keras.Model(images, logits)
    config = TransformConfig(size=SIZE, storage="png")
    served = tf.Module()
    served.weights = model.variables
    signatures = make_signatures(
        Classifier(model),
        lambda features: {ENCODED: canonicalize(tf.squeeze(features[ENCODED], 1), config)},
        labels=[label.encode() for label in LABELS],
        raw_spec={},
        config=config,
    )
    wanted = {name: signatures[name] for name in ("serving_default", "explain")}
    save_atomically(served, str(folder), wanted)


def draw(count: int) -> list[bytes]:
    import tensorflow as tf

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, [count, SIZE, SIZE, 3], np.uint8)
    return [tf.io.encode_png(image).numpy() for image in pixels]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    export(folder / "pushed" / "7")
    return folder


def test_metadata_answers_and_heat_maps(output: Path) -> None:
    [file] = draw(1)
    gc.unfreeze()
    versions = Versions(str(output / "pushed"), Model)
    # A collection that walked through TensorFlow's objects would hold up all requests for 0.2 s.
    assert gc.get_freeze_count() > 0
    with running(versions) as port:
        _, metadata = ask(port, "/v1/models/images/metadata")
        _, answer = ask(port, body=instances(file))
        _, broken = ask(port, body=instances(file[:-40]))
        _, why = ask(port, body=instances(file, signature_name="explain"))
    of_default = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    tensor = of_default["inputs"]["image_bytes"]
    assert tensor["dtype"] == "DT_STRING"
    assert tensor["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }
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


@contextlib.contextmanager
def _started(output: Path) -> Iterator[tuple[int, int]]:
    """Start a server in a process of its own; yield the ids of its process and port."""
    words = ["-u", str(ROOT / "local_runner.py"), "serve", "--output", str(output), "--port", "0"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            page = next(line for line in process.stdout if line.startswith("Page"))
            yield process.pid, int(page.rstrip("/\n").rpartition(":")[2])
        finally:
            process.terminate()


@contextlib.contextmanager
def _attacking(port: int, files: Sequence[bytes]) -> Iterator[None]:
    """Four clients send requests with several images; every other one hangs up soon."""
    stop = threading.Event()
    bodies = [json.dumps(instances(file, file)).encode() for file in files]

    def attack(number: int) -> None:
        for body in itertools.cycle(bodies[number:] + bodies[:number]):
            if stop.is_set():
                return
            with contextlib.suppress(OSError, http.client.HTTPException):
                ask(port, body=body, timeout=0.3 if number % 2 else 30)

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(4)]
    for thread in attackers:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in attackers:
            thread.join()


def _measure(port: int, *, seconds: float) -> list[float]:
    """Return the seconds of each request of a client with a small image."""
    [file] = draw(1)
    times = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        assert ask(port, body=instances(file))[0] == 200
        times.append(time.monotonic() - began)
        time.sleep(0.005)
    return times


def _read_memory(server: int) -> int:
    """Return the bytes that a server has with its processes."""
    total, parent = 0, psutil.Process(server)
    for process in (parent, *parent.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


@contextlib.contextmanager
def _watching(server: int, peaks: list[int]) -> Iterator[None]:
    """Add what memory the server has every 20 ms."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peaks.append(_read_memory(server))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_large_images_cost_bounded_memory_and_little_of_the_time_of_others(output: Path) -> None:
    large = Image.new("RGB", (_SIDE, _SIDE))
    files = [
        encode(large, "WEBP", lossless=True, method=0),  # 34 bytes
        encode(large, "TIFF", compression="tiff_adobe_deflate"),
        encode(large.convert("RGBA"), "PNG"),
        encode(large, "JPEG", exif=turned(6)),
        encode(large, "JPEG"),
    ]
    peaks: list[int] = []
    with _started(output) as (server, port):
        _measure(port, seconds=1)
        before = _read_memory(server)
        quiet = _measure(port, seconds=2)
        with _watching(server, peaks), _attacking(port, files):
            attacked = _measure(port, seconds=8)
    assert max(peaks) - before < _MOST_BYTES
    slowest, usual = (float(np.percentile(times, 99)) for times in (attacked, quiet))
    # Below 20 ms it is the machine that is measured.
    assert slowest < 3 * max(usual, 0.02) + _DECODER_SECONDS
