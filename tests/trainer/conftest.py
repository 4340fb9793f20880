"""Shared fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.trainer.input.shard_folder import ShardFolder


@pytest.fixture(scope="session")
def shard_folder(tmp_path_factory: pytest.TempPathFactory) -> ShardFolder:
    """64 training images in three shards and 20 of evaluation, in two."""
    from tests.trainer.input.shard_folder import write_shards

    return write_shards(tmp_path_factory.mktemp("shards"), train=[23, 17, 24], evaluation=[13, 7])
