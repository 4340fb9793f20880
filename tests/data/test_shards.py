from pathlib import Path

import pytest

from components.contract.errors import DataError
from pipeline_def.data.shards import Shards, map_shards


@pytest.mark.parametrize(("at_random", "most"), [(False, 64), (True, 200)])
def test_few_shards_stay_mapped_except_for_random_access(
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


def test_examples_of_tfx_transform_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "Split-train").mkdir()
    with pytest.raises(DataError, match="ImageTransform has not written these examples"):
        Shards.of_pattern(f"{tmp_path}/Split-train/*")
