from __future__ import annotations

from pathlib import Path

from pipeline_def.data.shards import map_shards


def test_shards_are_mapped_and_few_stay_open(tmp_path: Path) -> None:
    paths = []
    for number in range(200):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes([number]) * 10)
        paths.append(str(path))
    opened = map_shards(paths)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert [opened(number)[3] for number in range(200)] == list(range(200))
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 64
