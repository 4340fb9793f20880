"""Measures `local_runner.py serve` against the pushed model called in a loop, and under load.

    uv run -m benchmarks.serving --output output
    uv run -m benchmarks.serving --output output --soak 100000

The first measures requests per second for 1, 8 and 32 clients, in turn with the loop. The server
promises n clients a p99 of at most n calls of the loop plus 10 ms.

The second sends so many requests from 32 clients, while two versions are pushed and the server is
killed twice; clients repeat requests whose connection breaks. Each version answers otherwise. It
fails if an answer is missing or not that of the version it names.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from benchmarks.measuring import options
from benchmarks.measuring.process import Progress
from benchmarks.measuring.results import Figures, Spread, ratio, write_results
from benchmarks.serving_load import Expected, Load, answer_in_a_loop, put_load
from components.contract.errors import DataError, ModelError
from pipeline_def.apps.serve.model import Model
from pipeline_def.apps.serve.versions import find_newest

_MODULE = "benchmarks.serving"
_CLIENTS = (1, 8, 32)
# Milliseconds beside the calls of the model, in the promised p99.
_BESIDE = 10.0
_IMAGES = 200
_ROOT = Path(__file__).parents[1]


def _parser() -> argparse.ArgumentParser:
    parser = options.make_parser(_MODULE, __doc__, repeats=5)
    parser.add_argument("--output", default="output", help="output folder of a run that pushed")
    parser.add_argument("--data", help="folder of label/image; default: those of the sample")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--soak", type=int, default=0, help="requests with crashes instead")
    return parser


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        """Watch a process that listens on `port`."""
        self.process, self.port = process, port

    @property
    def versions(self) -> dict[str, str]:
        """Version → its state."""
        with urlopen(f"http://127.0.0.1:{self.port}/v1/models/images") as answer:
            states = json.load(answer)["model_version_status"]
        return {one["version"]: one["state"] for one in states}


@contextmanager
def started(output: str, port: int = 0) -> Iterator[Server]:
    """Start a server of an output folder, and end it."""
    arguments = ["serve", "--output", output, "--port", str(port)]
    command = [sys.executable, "-u", str(_ROOT / "local_runner.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            page = next(line for line in lines if line.startswith("Page"))
            yield Server(process, int(page.rstrip("/\n").rpartition(":")[2]))
        finally:
            process.terminate()


def read_images(folder: Path) -> list[bytes]:
    """Return the first images of a folder of folders, of all labels in turn.

    Raises:
        DataError: there are none.
    """
    if not any(folder.glob("*/*")):
        raise DataError(f"{folder} has no images in folders of their labels.")
    of_labels = [sorted(label.iterdir()) for label in sorted(folder.iterdir()) if label.is_dir()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*of_labels))
    return [path.read_bytes() for path in itertools.islice(filter(None, turns), _IMAGES)]


def compare(model: Model, port: int, files: list[bytes], arguments: argparse.Namespace) -> None:
    """Print a table; the loop and the server take turns within each round."""
    loops: list[Load] = []
    loads: dict[int, list[Load]] = {clients: [] for clients in _CLIENTS}
    progress = Progress(arguments.repeats * len(loads))
    # The first calls trace the model.
    asyncio.run(put_load(port, files, clients=max(_CLIENTS), seconds=1))
    for _ in range(arguments.repeats):
        for clients, found in loads.items():
            loops.append(
                answer_in_a_loop(
                    lambda file: model.predict("serving_default", [file]),
                    files,
                    seconds=arguments.seconds / len(_CLIENTS),
                )
            )
            put = put_load(port, files, clients=clients, seconds=arguments.seconds)
            found.append(asyncio.run(put))
            progress.report(f"{clients} clients: {found[-1].rate:,.0f} requests/s")
    rate = Spread.of([load.rate for load in loops])
    call = statistics.median(load.percentile(50) for load in loops)
    columns = ("", "requests/s", "of the loop", "p50, ms", "p99, ms", "promised p99, ms")
    table = Figures("One image per request", columns)
    rows = {"the model in a loop": loops}
    table.add("the model in a loop", *_cells(loops, rate), "")
    for clients, row in loads.items():
        rows[f"{clients} clients"] = row
        table.add(f"{clients} clients", *_cells(row, rate), f"{clients * call + _BESIDE:.1f}")
    table.show()
    for name, row in rows.items():
        if lost := [reason for load in row for reason in load.lost]:
            raise ModelError(f"{name}: {len(lost):,} requests were lost: {lost[0]}")
    rates = {name: [load.rate for load in row] for name, row in rows.items()}
    figures = {"requests_per_second": rates}
    write_results(_MODULE, [table], figures, arguments.json)


def _cells(loads: list[Load], loop: Spread) -> list[str]:
    rate = Spread.of([load.rate for load in loads])
    half, most = (statistics.median(load.percentile(p) for load in loads) for p in (50, 99))
    of_loop = "1.00 x" if rate == loop else ratio(rate, loop)
    return [rate.show(), of_loop, f"{half:.1f}", f"{most:.1f}"]


def expect(model: Model, files: list[bytes]) -> list[Expected]:
    """Ask the model for each file by itself."""
    rows = [model.predict("serving_default", [file])[0] for file in files]
    return [
        dict(zip([text.decode() for text in row["labels"]], row["probabilities"], strict=True))
        for row in rows
    ]


def prepare_versions(
    model: Model, files: list[bytes], output: str, *, more: int
) -> dict[str, list[Expected]]:
    """Save `more` versions to push later; return what each version says of the files.

    Each has half the weights of the one before in its last layers, and so answers otherwise.
    """
    import tensorflow as tf

    expected = {model.version: expect(model, files)}
    saved = tf.saved_model.load(os.path.join(output, "pushed", model.version))
    for number in range(int(model.version) + 1, int(model.version) + 1 + more):
        for matrix in (weight for weight in saved.weights if weight.shape.rank == 2):
            matrix.assign(matrix / 2)
        folder = os.path.join(output, "prepared", str(number))
        tf.saved_model.save(saved, folder, signatures=saved.signatures)
        expected[str(number)] = expect(Model(folder), files)
    return expected


def push(output: str, version: str) -> None:
    """Push a prepared version at once: a server may look while files are copied one by one."""
    os.rename(os.path.join(output, "prepared", version), os.path.join(output, "pushed", version))


def soak(model: Model, files: list[bytes], output: str, *, requests: int, file: str) -> None:
    """Push two versions and kill the server twice meanwhile.

    Raises:
        ModelError: an answer was wrong or missing, or a version was not taken up.
    """
    expected = prepare_versions(model, files, output, more=2)
    load, ended = Load(), threading.Event()
    with ExitStack() as stack:
        server = stack.enter_context(started(output))

        def kill() -> None:
            nonlocal server
            server.process.kill()
            server.process.wait()
            server = stack.enter_context(started(output, server.port))

        def disturb() -> None:
            _, second, third = expected
            acts = (lambda: push(output, second), kill, lambda: push(output, third), kill)
            for step, act in enumerate(acts, start=1):
                while len(load.seconds) < step * requests / 5:
                    if ended.wait(0.2):
                        return
                act()

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        work = put_load(
            server.port, files, expected, clients=32, seconds=math.inf, load=load, requests=requests
        )
        asyncio.run(work)
        ended.set()
        disturbing.join()
        versions = server.versions
    columns = (
        "requests",
        "of each version",
        "requests/s",
        "p99, ms",
        "sent again",
        "wrong",
        "lost",
    )
    table = Figures("32 clients, three versions, two crashes", columns)
    answered = [f"{load.answers[version]:,}" for version in expected]
    counts = (f"{load.repeated:,}", f"{len(load.wrong)}", f"{len(load.lost)}")
    figures = (" + ".join(answered), f"{load.rate:,.0f}", f"{load.percentile(99):.0f}")
    table.add(f"{len(load.seconds):,}", *figures, *counts)
    table.show()
    print(*(load.wrong + load.lost)[:3], sep="\n")
    print(f"versions: {versions}")
    write_results(_MODULE, [table], {"answered": dict(load.answers)}, file)
    is_last = list(versions) == [max(expected)] and all(map(load.answers.get, expected))
    if load.wrong or load.lost or len(load.seconds) != requests or not is_last:
        raise ModelError("Answers were wrong or missing, or a version was not taken up.")


def _serve(arguments: argparse.Namespace) -> None:
    path = find_newest(os.path.join(arguments.output, "pushed"))
    if path is None:
        raise ModelError(f"There is no pushed model in {arguments.output}.")
    files = read_images(Path(arguments.data or os.path.join(arguments.output, "sample")))
    model = Model(path)
    with TemporaryDirectory() as copy:
        shutil.copytree(path, os.path.join(copy, "pushed", model.version))
        if arguments.soak:
            soak(model, files, copy, requests=arguments.soak, file=arguments.json)
            return
        with started(copy) as server:
            compare(model, server.port, files, arguments)


if __name__ == "__main__":
    sys.exit(options.run(_parser(), _serve))
