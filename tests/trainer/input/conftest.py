"""Transformed shards written directly: reading them needs neither Beam nor TensorFlow Transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.trainer.input.shard_folder import ShardFolder


@pytest.fixture(scope="session")
def shard_folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    """100 training images in five shards of different sizes, 20 of evaluation in two."""
    from tests.trainer.input.shard_folder import write_shards

    return write_shards(
        tmp_path_factory.mktemp("shards"), train=[23, 17, 20, 31, 9], evaluation=[13, 7]
    )
