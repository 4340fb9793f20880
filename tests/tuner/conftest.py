"""Shared fixtures."""

from tests.trainer.conftest import shard_folder

__all__ = ["shard_folder"]
