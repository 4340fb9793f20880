"""Decode batches in processes: Python's work on one image then does not hold up other threads.

Run as a program, this module is such a process.
"""

import functools
import logging
import mmap
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from components.contract.worker_process import WorkerProcess, serve
from components.images import tensorflow_decoder
from components.images.options import CHANNELS
from components.transform.config import TransformConfig
from pipeline_def.data.host_calls import BatchMemory, Pixels
from pipeline_def.data.host_decode import HostDecoder
from pipeline_def.data.sampler import Int64Array
from pipeline_def.data.shards import RecordTable

_LOGGER = logging.getLogger(__name__)

# Largest side of images, pixels, for which processes pay off: larger ones take so long to decode
# that threads rarely wait for Python's work on them.
_LARGEST = 64

_NONE = np.empty(0, np.int64)

# Fewest images per epoch: a few epochs of them save the time that starting a process takes.
_FEWEST = 20_000


def are_worth_it(records: int, config: TransformConfig, *, workers: int) -> bool:
    """Return whether processes, rather than threads, should decode `records` images per epoch."""
    small = config.stored_size <= _LARGEST and config.storage in ("jpeg", "png")
    return small and workers > 1 and records >= _FEWEST


class ProcessDecoder(HostDecoder):
    """A `HostDecoder` that has an idle process decode a batch, if there is one."""

    def __init__(
        self,
        table: RecordTable,
        map_shards: Callable[[], Callable[[int], memoryview]],
        config: TransformConfig,
        workers: int,
    ) -> None:
        """Start processes; each maps the shards with `map_shards`."""
        # It decodes here until they have started, and what they cannot decode.
        super().__init__(table, map_shards(), config)
        self._shape = (config.seen_size, config.seen_size, CHANNELS)
        self._memory = _SharedMemory()
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        processes = [WorkerProcess(__name__, self._memory.file) for _ in range(workers)]
        arguments = (processes, (map_shards, config, table.take(_NONE)), self._idle)
        threading.Thread(target=_prepare, args=arguments, daemon=True).start()
        self.close = weakref.finalize(self, _end, processes, self._memory.file)
        # When Python exits, batches may still be wanted, and the processes end with it anyway.
        self.close.atexit = False

    def decode(self, records: Int64Array, windows: npt.NDArray[np.int32]) -> Pixels:
        """Decode a batch to the same pixels as a `HostDecoder`."""
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            return super().decode(records, windows)
        batch = self._memory.take((len(records), *self._shape))
        try:
            # Not the whole table once, of which every process would need a copy.
            places = self.table.take(records)
            process.connection.send((self._memory.offset(batch), batch.shape, places, windows))
            decoded: bool = process.connection.recv()
        except (EOFError, OSError):
            _LOGGER.warning(
                "A process that decodes images has ended, perhaps for lack of memory; a thread "
                "takes its place, and the images stay the same."
            )
            return super().decode(records, windows)
        self._idle.put(process)
        return batch if decoded else super().decode(records, windows)


class _SharedMemory(BatchMemory):
    """Memory that other processes map, too."""

    def __init__(self) -> None:
        super().__init__()
        self.file = os.memfd_create("batches")
        self._offsets: dict[int, int] = {}

    def offset(self, batch: Pixels) -> int:
        """Return the offset of a batch in the file."""
        return self._offsets[batch.ctypes.data]

    def _allocate(self, size: int) -> Pixels:
        offset = os.fstat(self.file).st_size
        os.ftruncate(self.file, offset - size // -mmap.PAGESIZE * mmap.PAGESIZE)
        memory = _map(self.file, size, offset)
        self._offsets[memory.ctypes.data] = offset
        return memory


def _map(file: int, size: int, offset: int) -> Pixels:
    return np.frombuffer(mmap.mmap(file, size, offset=offset), np.uint8)


def _prepare(
    processes: Sequence[WorkerProcess], task: Any, idle: queue.SimpleQueue[WorkerProcess]
) -> None:
    """Give each process its task; it is idle as soon as it has started."""
    for process in processes:
        try:
            process.connection.send(task)
            process.connection.recv()
        except (EOFError, OSError) as error:
            _LOGGER.info("A process that decodes images has not started: %s", error)
        else:
            idle.put(process)


def _end(processes: Sequence[WorkerProcess], file: int) -> None:
    for process in processes:
        process.end()
    os.close(file)


def _decode_batches(connection: Connection) -> NoReturn:
    """Decode the batches that arrive; answer whether that was possible."""
    tensorflow_decoder.run_with(_refuse)
    map_shards, config, no_places = connection.recv()
    decoder = HostDecoder(no_places, map_shards(), config)
    map_once = functools.cache(functools.partial(_map, int(sys.argv[2])))
    connection.send(None)
    while True:
        offset, shape, decoder.table, windows = connection.recv()
        try:
            batch = map_once(int(np.prod(shape)), offset).reshape(shape)
            np.copyto(batch, decoder.decode(np.arange(len(batch)), windows))
        except Exception:  # The process that has TensorFlow decodes the batch, or raises the error.
            connection.send(False)
        else:
            connection.send(True)


def _refuse(decoder: tensorflow_decoder.Decoder, data: bytes) -> NoReturn:
    raise NotImplementedError("TensorFlow is not loaded here")


if __name__ == "__main__":
    serve(_decode_batches)
