"""Fixtures that run the real components, once a session, on a few images made on the spot.

Nothing here imports TensorFlow or TFX before a test asks for it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys

# Before TensorFlow is imported: errors only, as there is no GPU to report on.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
# tf_keras in place of Keras 3, which nothing here uses, as in the runners.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
# Several processes share the cores: threads of each would only get in the way of the others.
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
# No run could keep weights that Keras downloads.
os.environ["KERAS_HOME"] = os.devnull
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pictures import write_folder

if TYPE_CHECKING:
    from tests import nodes

SIZE = 32

Refusal = Callable[..., str]

_TESTS = Path(__file__).parent
_LOGGER = logging.getLogger(__name__)

# Without byte code, which some shells keep Python from writing, each process rewrites all
# assertions anew: 2 to 3 s.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# On a disk, each file that a test writes, syncs or deletes takes milliseconds.
with contextlib.suppress(FileNotFoundError):
    memory = os.statvfs("/dev/shm")
    if memory.f_bavail * memory.f_frsize > 4 << 30 and not memory.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# Importing TensorFlow and TFX makes millions of objects, none of which is garbage.
gc.disable()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


# A wrapper, as pytest-xdist reads the groups in this very hook, before those of any conftest.
@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Keep the fast tests of a folder in one process, so that its fixtures are made once.

    Those that name a group of their own stay in that; slow ones, and with them the weekly ones, go
    wherever there is time.
    """
    ranks, sizes = {}, Counter[str]()
    for item in items:
        if any(item.iter_markers("weekly")):
            item.add_marker(pytest.mark.slow)
        named, slow = (any(item.iter_markers(mark)) for mark in ("xdist_group", "slow"))
        if not named and not slow:
            item.add_marker(pytest.mark.xdist_group(_folder(item)))
            sizes[_folder(item)] += 1
        # Groups that take minutes begin first, and single tests fill the gaps at the end.
        ranks[item] = 0 if named and slow else 2 if slow else 1
    # Of the others, the largest first: a long one at the end would run beside nothing.
    items.sort(key=lambda item: (ranks[item], -sizes[_folder(item)] if ranks[item] == 1 else 0))
    yield


def pytest_collection_finish() -> None:
    """Look for garbage from here on, less often, and not among what was imported."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(autouse=True)
def reset_logging() -> None:
    """Undo what libraries do to the log of the whole process, each in a loop over all loggers."""
    if logging.root.manager.disable:
        logging.disable(logging.NOTSET)
    # Vertex AI's client sets it.
    if logging.root.level != logging.WARNING:
        logging.root.setLevel(logging.WARNING)
    # `logging.config` disables every logger that its configuration does not name.
    if _LOGGER.disabled:
        for logger in list(logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger):
                logger.disabled = False


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for a lock in use again soon."""
    monkeypatch.setattr("components.host.lock._PAUSE", 0.02)


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Run a command that ends with status 2; return its error message, one line."""

    def run(*words: object, program: str = "local_runner") -> str:
        status = importlib.import_module(program).main([*map(str, words)])
        [line] = capsys.readouterr().err.splitlines()
        assert (status, line.startswith(f"{program}.py: error: ")) == (2, True), line
        return str(line)

    return run


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 40 pictures, with a broken one and a hidden file among them."""
    folder = write_folder(tmp_path_factory.mktemp("images"), each=40)
    (folder / "red" / "broken.jpg").write_bytes(b"no image")
    (folder / "red" / ".DS_Store").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def ingested(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> nodes.Ingested:
    """`image_folder` after ImageExampleGen."""
    from tests import nodes

    return nodes.ingest(image_folder, tmp_path_factory.mktemp("ingested"))


@pytest.fixture(scope="session")
def transformed(
    ingested: nodes.Ingested, tmp_path_factory: pytest.TempPathFactory
) -> nodes.Transformed:
    """`image_folder` after Transform to 32 x 32 pixels."""
    from components.images.options import TransformConfig
    from tests import nodes

    target = tmp_path_factory.mktemp("transformed")
    return nodes.transform(ingested, target, config=TransformConfig(size=SIZE))


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed up the bootstrap of intervals whose width does not matter."""
    for name in ("_MOST_RESAMPLES", "_LEAST_RESAMPLES"):
        monkeypatch.setattr(f"components.metrics.intervals.{name}", 50)
