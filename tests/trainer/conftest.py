"""Shared fixtures."""

import pytest

from tests.trainer.input.shard_folder import ShardFolder, write_shards


@pytest.fixture(scope="session")
def shard_folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    """64 training images in three shards and 20 of evaluation, in two."""
    return write_shards(tmp_path_factory.mktemp("shards"), train=[23, 17, 24], evaluation=[13, 7])
