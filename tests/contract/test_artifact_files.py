from pathlib import Path

import pytest

from components.contract.artifact_files import read_part, write_parts


@pytest.mark.parametrize("parts", [[b"only"], [b"one", b"", b"three" * 1000]])
def test_each_part_is_read_by_its_number(parts: list[bytes], tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    write_parts(path, iter(parts))
    assert [read_part(path, number) for number in range(len(parts))] == parts
