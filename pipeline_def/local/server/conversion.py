"""Converts large images in other processes: a few at a time, until their clients are gone.

Decoders hold the interpreter lock for up to a second, take many bytes per pixel, and cannot be
stopped. A process takes no time of other requests and can be ended.
"""

import asyncio
import atexit
import contextlib
import itertools
import multiprocessing
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from components.images.check import convert
from components.images.check_result import Category, Rejected
from components.images.options import ImageOptions
from pipeline_def.local.server.batching import File, Picture
from pipeline_def.local.server.rest import RequestError

_SPAWN = multiprocessing.get_context("spawn")

# Below the server's own priority, so that small requests do not wait for a core.
_NICENESS = 10

# How a process ends that somebody stopped, such as the kernel for lack of memory.
_STOPPED = (-signal.SIGKILL, -signal.SIGTERM)


class Converter:
    """Converts images in `processes` processes; whoever holds a result keeps its process busy."""

    def __init__(self, options: ImageOptions, processes: int) -> None:
        """Prepare to start processes, which the first images do."""
        self._threads = ThreadPoolExecutor(processes, "convert")
        # Processes make it when they need it: a cleaner of temporary files may have removed it.
        self._folder = Path(tempfile.gettempdir(), f"converted-{uuid.uuid4().hex}")
        self._numbers = itertools.count()
        self._idle: asyncio.Queue[_Process] = asyncio.Queue()
        self._processes = [_Process(self._folder, options) for _ in range(processes)]
        for process in self._processes:
            self._idle.put_nowait(process)
        # Before the handler of multiprocessing, which waits for processes that ignore SIGTERM.
        atexit.register(self.close)

    @contextlib.asynccontextmanager
    async def convert(self, file: File) -> AsyncIterator[File]:
        """Yield the file itself, or a converted one, which is removed afterwards.

        A conversion that is canceled ends at once, with its process.

        Raises:
            RequestError: the image may be good, but the machine lacks memory or disk space.
        """
        if isinstance(file, Rejected):
            yield file
            return
        process = await self._idle.get()
        path = self._folder / str(next(self._numbers))

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
        """End threads and processes."""
        atexit.unregister(self.close)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Process:
    """A process that converts one image at a time, and is started again after it died."""

    def __init__(self, folder: Path, options: ImageOptions) -> None:
        self._arguments = folder, options
        self._running: tuple[Connection, multiprocessing.process.BaseProcess] | None = None

    def convert(self, file: Picture, path: Path) -> File:
        """Return the file itself, a converted one at `path`, or the reason why not."""
        try:
            if self._running is None or not self._running[1].is_alive():
                self._running = self._start()
            connection, process = self._running
        except OSError as error:
            raise _busy(f"no process can be started ({error.strerror})") from error
        try:
            connection.send((file.encoded, path))
            found: bool | str | tuple[Category, str] = connection.recv()
        except (EOFError, OSError) as error:
            self._running = None
            process.join()
            if process.exitcode in _STOPPED:
                raise _busy("the process was stopped, perhaps for lack of memory") from error
            return Rejected(Category.UNREADABLE, "its decoder failed")
        if isinstance(found, str):
            raise _busy(found)
        if isinstance(found, bool):
            return file._replace(encoded=path) if found else file
        return Rejected(*found)

    def kill(self) -> None:
        """End the process, and with it the conversion."""
        running, self._running = self._running, None
        if running:
            running[1].kill()

    def _start(self) -> tuple[Connection, multiprocessing.process.BaseProcess]:
        ours, theirs = _SPAWN.Pipe()
        arguments = (theirs, *self._arguments)
        process = _SPAWN.Process(target=_convert_all, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return ours, process


def _busy(reason: str) -> RequestError:
    return RequestError(503, f"The server cannot convert a large image now: {reason}.")


def _convert_all(connection: Connection, folder: Path, options: ImageOptions) -> None:
    """Convert what arrives, until the server dies; then remove the files that it left."""
    # The server finishes its requests first, even if all its processes get the signal.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    with contextlib.suppress(EOFError, OSError):
        while True:
            data, path = connection.recv()
            try:
                converted = convert(data, options)
                if converted is not data:
                    folder.mkdir(mode=0o700, exist_ok=True)
                    path.write_bytes(converted)
                connection.send(converted is not data)
            except Rejected as rejected:
                connection.send((rejected.category, str(rejected)))
            except OSError as error:
                connection.send(error.strerror or str(error))
    shutil.rmtree(folder, ignore_errors=True)
