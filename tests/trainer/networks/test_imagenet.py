"""Files of PyTorch's tensors: read without it, and refused if they contain anything else."""

import io
import os
import pickle
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from components.trainer.networks.imagenet import read_tensors

# Offset, shape and strides in a storage of twelve numbers.
View = tuple[Any, Any, Any]
ROWS: View = (0, (3, 4), (4, 1))


class Storage:
    """A storage that the pickle names."""


class Tensor:
    """A view of it."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __reduce__(self) -> Any:
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (Storage(), *self._view, False, OrderedDict())


class Pickler(pickle.Pickler):
    def __init__(self, file: Any, kind: str) -> None:
        super().__init__(file, protocol=2)
        self._kind = kind

    def persistent_id(self, value: Any) -> Any:
        kind = getattr(sys.modules["torch"], self._kind)
        return ("storage", kind, "7", "cpu", 12, None) if isinstance(value, Storage) else None


class Command:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._path}",)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules whose members pickle finds by name."""
    names = {"torch": ("FloatStorage", "HalfStorage"), "torch._utils": ("_rebuild_tensor_v2",)}
    for name, members in names.items():
        module: Any = ModuleType(name)
        for member in members:
            function = type(member, (), {"__module__": name, "__qualname__": member})
            setattr(module, member, function)
        monkeypatch.setitem(sys.modules, name, module)


def write(data: Any, *, kind: str = "FloatStorage", protocol: int = 1001, more: int = 0) -> bytes:
    """Write a file of one storage with the numbers 0 to 11."""
    file = io.BytesIO()
    for head in (0x1950A86A20F9469CFC6C, protocol, {"little_endian": True}):
        pickle.dump(head, file, protocol=2)
    Pickler(file, kind).dump(data)
    pickle.dump(["7"], file, protocol=2)
    file.write((12 + more).to_bytes(8, "little") + np.arange(12, dtype="<f4").tobytes())
    return file.getvalue()


def tensors(*views: View) -> Any:
    return OrderedDict((f"{number}", Tensor(view)) for number, view in enumerate(views))


def test_views_of_a_storage_are_read_by_their_strides() -> None:
    numbers = np.arange(12, dtype=np.float32)
    views = (ROWS, (0, (4, 3), (1, 4)), (5, (), ()), (1, (2, 2), (6, 3)), (0, (0, 2), (2, 1)))
    arrays = read_tensors(write(tensors(*views)))
    rows = numbers.reshape(3, 4)
    expected = (rows, rows.T, numbers[5], numbers[[1, 4, 7, 10]].reshape(2, 2), np.zeros([0, 2]))
    for array, known in zip(arrays.values(), expected, strict=True):
        np.testing.assert_array_equal(array, known, strict=False)
        assert array.shape == known.shape


def test_a_file_that_runs_code_does_not_run_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for content in ({"0": Command(trace)}, Command(trace)):
        with pytest.raises(ValueError, match=r"it names posix\.system"):
            read_tensors(write(content))
    assert not trace.exists()


@pytest.mark.parametrize(
    "view",
    [
        (0, (3, 5), (4, 1)),
        (1, (3, 4), (4, 1)),
        (-1, (3, 4), (4, 1)),
        (13, (), ()),
        (11, (2,), (-1,)),
        (0, (-2, 2), (2, 1)),
        # Larger than memory, though all of it lies within.
        (0, (10**12,), (0,)),
        (0, (3, 4), (4,)),
        (0, (3.0, 4), (4, 1)),
        (0, "ab", (4, 1)),
    ],
)
def test_views_outside_of_their_storage_are_refused(view: View) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_tensors(write(tensors(ROWS, view)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda whole: b"", "Ran out of input"),
        (lambda whole: b"PK\x03\x04" + whole, ""),
        (lambda whole: b"\x89HDF\r\n\x1a\n" + whole, ""),
        (lambda whole: whole[:-1], "cut off"),
        (lambda whole: whole[:60], ""),
        (lambda whole: whole[: len(whole) // 2], ""),
        (lambda whole: write(tensors(ROWS), protocol=1002), "another format"),
        (lambda whole: write(tensors(ROWS), more=2**40), "cut off"),
        (lambda whole: write(tensors(ROWS), kind="HalfStorage"), r"names torch\.HalfStorage"),
        (lambda whole: write({"0": 1}), ""),
        (lambda whole: write([Tensor(ROWS)]), ""),
    ],
)
def test_damaged_and_foreign_files_are_refused(change: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_tensors(change(write(tensors(ROWS))))
