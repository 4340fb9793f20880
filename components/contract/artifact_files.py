"""Files of artifacts: TensorFlow, which takes seconds to load, is used for URLs only."""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from components.contract.errors import StorageError, UserError

PAGE_FILE = "report.html"
CARD_FILE = "model_card.md"
METRICS_FILE = "metrics.json"
"""File names of the report's artifacts in a local run, where each artifact is a folder."""

COPY_BYTES = 2**24
"""Bytes of a file that are copied at once."""

# Beam runners that work on the step's own machine, where its disk is.
_LOCAL_RUNNERS = {"", "fnapi", "direct", "bundlebaseddirect", "switchingdirect", "prism"}

# A file of parts: the parts, the offset of each and the end of the last, and their number.
_NUMBER = struct.Struct("<Q")


def on_disk(path: str) -> bool:
    """Return whether `path` is a local path, not a URL."""
    return "://" not in path


def uses_other_machines(beam_args: Sequence[str]) -> bool:
    """Return whether Beam runs where a step's own disk cannot be seen."""
    return find_runner(beam_args) not in _LOCAL_RUNNERS


def find_runner(beam_args: Sequence[str]) -> str:
    """Return which runner Beam's options name, such as "flink"; "" for none.

    Beam takes `--runner=FlinkRunner`, `--runner flink`, and the path of a class.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--runner", nargs="?", default="", const="")
    name: str = parser.parse_known_args(beam_args)[0].runner
    return name.rpartition(".")[2].lower().removesuffix("runner")


def open_file(path: str, mode: str = "r") -> Any:
    """Open a file; text is UTF-8."""
    if on_disk(path):
        return open(path, mode, encoding=None if "b" in mode else "utf-8")
    gfile = _gfile()
    if mode.startswith("r") and not gfile.exists(path):
        raise FileNotFoundError(path)
    return gfile.GFile(path, mode)


def write_text(text: str, uri: str, name: str) -> None:
    """Write a text artifact: to `uri` on Kubeflow, to the file `name` in that folder locally."""
    path = _text_path(uri, name)
    make_folders(os.path.dirname(path))
    with open_file(path, "w") as file:
        file.write(text)


def read_text(uri: str, name: str) -> str:
    """Read what `write_text` has written."""
    with open_file(_text_path(uri, name)) as file:
        return str(file.read())


def _text_path(uri: str, name: str) -> str:
    is_folder = os.path.isdir(uri) if on_disk(uri) else _gfile().isdir(uri)
    return os.path.join(uri, name) if is_folder else uri


def read_json(path: str) -> Any:
    """Read a JSON file."""
    with open_file(path) as file:
        return json.loads(file.read())


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors from parsing the file at `path`, a path or URL, into a `StorageError`."""
    try:
        yield
    except (OSError, UserError):
        raise
    except Exception as error:  # From IndexError to what NumPy's header parser raises.
        raise StorageError(
            f"{path} is damaged ({error}): remove the output folder, and run again."
        ) from error


def make_folders(path: str) -> None:
    """Create a folder and its parents if they do not exist."""
    if on_disk(path):
        os.makedirs(path, exist_ok=True)
    else:
        _gfile().makedirs(path)


def move(source: str, target: str) -> None:
    """Rename a file; atomic on disk."""
    if on_disk(source):
        os.replace(source, target)
    else:
        _gfile().rename(source, target, overwrite=True)


def put(source: str, target: str) -> None:
    """Move a file of this disk to a path on it, or copy it to a URL."""
    if on_disk(target):
        os.replace(source, target)
    else:
        with open(source, "rb") as file, open_file(target, "wb") as uploaded:
            shutil.copyfileobj(file, uploaded, COPY_BYTES)


def make_scratch(folder: str) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder for files to `put` into `folder`: in it if it is on this disk."""
    # Absolute, as pyarrow takes a relative path such as "my folder/x" for a URL.
    return tempfile.TemporaryDirectory(dir=os.path.abspath(folder) if on_disk(folder) else None)


def link(source: str, target: str) -> None:
    """Copy a file that will not change, on disk; without copying its bytes if possible."""
    try:
        os.link(source, target)
    except OSError:  # Of a file system without hard links, or with too many.
        shutil.copy2(source, target)


def list_names(folder: str) -> list[str]:
    """Return the sorted names in a folder; none if it does not exist."""
    if on_disk(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    gfile = _gfile()
    # TensorFlow appends a slash to the names of remote folders.
    names = gfile.listdir(folder) if gfile.isdir(folder) else []
    return sorted(name.rstrip("/") for name in names)


def remove(path: str) -> None:
    """Remove a file, or a folder with its content."""
    if not on_disk(path):
        gfile = _gfile()
        (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def move_paths(content: bytes, old: str, new: str) -> bytes:
    """Replace the folder at the start of paths in JSON."""
    before, after = (json.dumps(folder)[:-1].encode() for folder in (old, new))
    for end in (b"/", b'"'):
        content = content.replace(before + end, after + end)
    return content


def write_parts(path: str, parts: Iterable[bytes]) -> None:
    """Write parts to a file, a path or URL, from which workers read them by their numbers.

    Beam pickles an element about eight times on its way to a worker, and a job's graph ends at
    2 GB: it moves the numbers of the parts instead.
    """
    sizes = []
    with open_file(path, "wb") as file:
        for part in parts:
            sizes.append(len(part))
            file.write(part)
        offsets = itertools.accumulate(sizes, initial=0)
        file.write(b"".join(map(_NUMBER.pack, (*offsets, len(sizes)))))


def read_part(path: str, number: int) -> bytes:
    """Read the part with this number, counted from 0."""
    with open_file(path, "rb") as file:
        file.seek(-_NUMBER.size, 2)
        [count] = _NUMBER.unpack(file.read(_NUMBER.size))
        file.seek(-_NUMBER.size * (count + 2 - number), 2)
        start, end = struct.unpack("<2Q", file.read(2 * _NUMBER.size))
        file.seek(start)
        content: bytes = file.read(end - start)
        return content


def _gfile() -> Any:
    import tensorflow as tf

    return tf.io.gfile
