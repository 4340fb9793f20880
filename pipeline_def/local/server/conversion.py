"""Converts large images in other processes: a few at a time, until their clients are gone.

Decoders hold the interpreter lock for up to a second, take many bytes per pixel, and cannot be
stopped. A process takes no time of other requests and can be ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import shutil
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from components.images.check_result import Category, Rejected
from components.images.options import ImageOptions
from components.images.servable import convert
from pipeline_def.local.server.batching import File, Picture

_SPAWN = multiprocessing.get_context("spawn")

# Below the server's own priority, so that small requests do not wait for a core.
_NICENESS = 10


class Converter:
    """Converts images in `processes` processes; whoever holds a result keeps its process busy."""

    def __init__(self, options: ImageOptions, processes: int) -> None:
        """Prepare to start processes, which the first images do."""
        self._threads = ThreadPoolExecutor(processes, "convert")
        self._folder = TemporaryDirectory(prefix="converted-")
        self._numbers = itertools.count()
        self._idle: asyncio.Queue[_Process] = asyncio.Queue()
        for _ in range(processes):
            self._idle.put_nowait(_Process(self._folder.name, options))

    @contextlib.asynccontextmanager
    async def convert(self, file: File) -> AsyncIterator[File]:
        """Yield the file itself, or a converted one, which is removed afterwards.

        A conversion that is canceled ends at once, with its process.
        """
        if isinstance(file, Rejected):
            yield file
            return
        process = await self._idle.get()
        path = Path(self._folder.name, str(next(self._numbers)))

        def free(_: object) -> None:
            path.unlink(missing_ok=True)
            self._idle.put_nowait(process)

        loop = asyncio.get_running_loop()
        converting = loop.run_in_executor(self._threads, process.convert, file, path)
        try:
            yield await asyncio.shield(converting)
        finally:
            if not converting.done():
                process.kill()
            converting.add_done_callback(free)

    def close(self) -> None:
        """End threads and idle processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        while not self._idle.empty():
            self._idle.get_nowait().kill()
        self._folder.cleanup()


class _Process:
    """A process that converts one image at a time, and is started again after it died."""

    def __init__(self, folder: str, options: ImageOptions) -> None:
        self._arguments = folder, options
        self._running: tuple[Connection, multiprocessing.process.BaseProcess] | None = None

    def convert(self, file: Picture, path: Path) -> File:
        """Return the file itself, a converted one at `path`, or the reason why not."""
        try:
            connection, _ = self._running = self._running or self._start()
            connection.send((file.encoded, path))
            found: bool | tuple[Category, str] = connection.recv()
        except (EOFError, OSError):
            self._running = None
            return Rejected(Category.UNREADABLE, "its decoder failed")
        if isinstance(found, bool):
            return file._replace(encoded=path) if found else file
        return Rejected(*found)

    def kill(self) -> None:
        """End the process, and with it the conversion."""
        if self._running:
            self._running[1].kill()

    def _start(self) -> tuple[Connection, multiprocessing.process.BaseProcess]:
        ours, theirs = _SPAWN.Pipe()
        arguments = (theirs, *self._arguments)
        process = _SPAWN.Process(target=_convert_all, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return ours, process


def _convert_all(connection: Connection, folder: str, options: ImageOptions) -> None:
    """Convert what arrives, until the server dies; then remove the files that it left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    with contextlib.suppress(EOFError, OSError):
        while True:
            data, path = connection.recv()
            try:
                converted = convert(data, options)
                if converted is not data:
                    path.write_bytes(converted)
                connection.send(converted is not data)
            except Rejected as rejected:
                connection.send((rejected.category, str(rejected)))
            except OSError as error:
                connection.send((Category.UNREADABLE, f"not converted: {error.strerror}"))
    shutil.rmtree(folder, ignore_errors=True)
