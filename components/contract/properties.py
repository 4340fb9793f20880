"""The properties of artifacts that one stage writes and another reads, without TFX."""

from __future__ import annotations

from typing import Any, Protocol


class Described(Protocol):
    """An artifact, as far as those who know nothing of TFX read it."""

    @property
    def uri(self) -> str:
        """Folder of its files."""

    @property
    def split_names(self) -> str:
        """JSON list."""


class Properties(Described, Protocol):
    """One with what was noted about it."""

    span: Any
    version: Any

    def get_string_custom_property(self, name: str) -> str:
        """Return a text, "" if there is none."""

    def get_float_custom_property(self, name: str) -> float:
        """Return a number."""


FOLDER_PROPERTY = "folder"
"""Of the examples: the folder that ingest read."""

CONFIG_PROPERTY = "ingest"
"""Of the examples: the configuration of ingest, JSON."""

FOUND_PROPERTY = "found"
"""Of the baseline: 1 if there is a model in use, else 0."""

VERSION_PROPERTY = "version"
"""Of the baseline: its version among the pushed models."""

SPLIT_PROPERTY = "split"
"""Of the evaluation: the split that judged the model."""

BASELINE_PROPERTY = "baseline_version"
"""Of the evaluation: the version of the model in use that it compares with, if there is one."""

MAJORITY_PROPERTY = "share_of_most_frequent_class"
"""Of the evaluation: the majority-class accuracy on that split, 0 to 1."""
