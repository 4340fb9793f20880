from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_def.data.shards import map_shards


@pytest.mark.parametrize(("at_random", "most"), [(False, 64), (True, 200)])
def test_shards_are_mapped_and_few_stay_open_unless_all_are_read_at_a_time(
    tmp_path: Path, at_random: bool, most: int
) -> None:
    paths = []
    for number in range(200):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes([number]) * 10)
        paths.append(str(path))
    opened = map_shards(paths, at_random=at_random)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert [opened(number)[3] for number in range(200)] == list(range(200))
    kept = len(list(Path("/proc/self/fd").iterdir())) - before
    assert most // 2 < kept <= most
