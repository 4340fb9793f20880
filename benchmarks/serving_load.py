"""Clients of a server, all in one thread: what they asked, what they got, and how long it took."""

import asyncio
import base64
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Expected = Mapping[str, float]
"""Label → probability."""


@dataclass
class Load:
    """What came of a load."""

    seconds: list[float] = field(default_factory=list)
    """Of each request that was answered."""
    wrong: list[str] = field(default_factory=list)
    """Answers that are not what the version they name says of the image."""
    answers: Counter[str] = field(default_factory=Counter)
    """Of each version."""
    lost: list[str] = field(default_factory=list)
    """Requests without an answer."""
    repeated: int = 0
    """Requests that were sent again because a connection broke."""
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.seconds) / self.elapsed

    def percentile(self, percent: float) -> float:
        """Return a percentile of the times, in milliseconds."""
        return float(np.percentile(self.seconds, percent)) * 1000


async def put_load(
    port: int,
    files: Sequence[bytes],
    expected: Mapping[str, Sequence[Expected]] | None = None,
    *,
    clients: int,
    seconds: float,
    load: Load | None = None,
    requests: float = math.inf,
) -> Load:
    """Ask for one image a request, each client as soon as it has its last answer.

    Args:
        port: of the server.
        files: images.
        expected: version → what it says of each; default: not compared.
        clients: at the same time, each with a connection of its own.
        seconds: to go on for.
        load: what to add to, for another thread that reads it; default: a new one.
        requests: to end after; with a number, whoever loses the connection asks again until the
            request is answered.
    """
    load, numbers = load or Load(), itertools.count(1)
    asked = [_request(file) for file in files]
    began = time.monotonic()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < began + seconds and (number := next(numbers)) <= requests:
            place = number % len(files)
            request, sent = asked[place], time.monotonic()
            try:
                status, body = await _exchange(reader, writer, request)
            except (OSError, asyncio.IncompleteReadError) as error:
                if requests == math.inf:
                    load.lost.append(repr(error))
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    continue
                reader, writer, status, body = await _ask_again(load, port, request)
            taken = time.monotonic() - sent
            here = {version: answers[place] for version, answers in (expected or {}).items()}
            _judge(load, status, body, taken, here)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.elapsed = time.monotonic() - began
    return load


def _request(file: bytes) -> bytes:
    data = [base64.b64encode(file).decode()]
    tensor = {"name": "image_bytes", "datatype": "BYTES", "shape": [1], "data": data}
    body = json.dumps({"inputs": [tensor]})
    head = "POST /v2/models/images/infer HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


async def _ask_again(
    load: Load, port: int, request: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int, bytes]:
    """Send a request over new connections until it is answered."""
    while True:
        load.repeated += 1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            return (reader, writer, *await _exchange(reader, writer, request))
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.1)


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split(maxsplit=2)[1]), await reader.readexactly(length)


def _judge(
    load: Load, status: int, body: bytes, seconds: float, expected: Mapping[str, Expected]
) -> None:
    load.seconds.append(seconds)
    if status != 200:
        load.lost.append(f"{status} {body[:200]!r}")
    elif expected:
        version, outputs = _read(body)
        load.answers[version] += 1
        scores = dict(zip(outputs["labels"], outputs["probabilities"], strict=True))
        if any(abs(scores[label] - value) > 1e-5 for label, value in expected[version].items()):
            load.wrong.append(f"{scores} instead of {expected[version]}")


def _read(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the version that answered, and its outputs by name."""
    answer = json.loads(body)
    return answer["model_version"], {output["name"]: output["data"] for output in answer["outputs"]}


def answer_in_a_loop(
    ask: Callable[[bytes], object], files: Sequence[bytes], *, seconds: float
) -> Load:
    """Call a model in this process, image after image: what the server is compared with."""
    load, began = Load(), time.monotonic()
    for file in itertools.cycle(files):
        sent = time.monotonic()
        if sent > began + seconds:
            break
        ask(file)
        load.seconds.append(time.monotonic() - sent)
    load.elapsed = time.monotonic() - began
    return load
