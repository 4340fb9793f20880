"""What code without TFX reads of artifacts: properties, and the inputs of lookups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class PropertiesLike(Protocol):
    """The part of an artifact that code without TFX reads."""

    uri: str
    split_names: str
    span: Any
    version: Any

    def get_string_custom_property(self, name: str) -> str:
        """Return a text, or "" if there is none."""

    def get_float_custom_property(self, name: str) -> float:
        """Return a number."""


@dataclass(frozen=True)
class LookupInput:
    """The part of an input artifact that lookups read."""

    uri: str
    """Path or URL of its folder."""

    span: int = 0
    """Span of the examples; 0 if the data has no spans."""

    examples_key: str = ""
    """See `EXAMPLES_KEY_PROPERTY`; empty if it is unknown."""


Lookup = Callable[[Mapping[str, LookupInput], Mapping[str, Any]], dict[str, Any]]
"""Inputs and execution properties → resolved execution properties."""

FOLDER_PROPERTY = "folder"
"""Examples: folder that ingest read."""

CONFIG_PROPERTY = "ingest"
"""Examples: configuration of ingest, JSON."""

EXAMPLES_KEY_PROPERTY = "examples_key"
"""Examples and their statistics: digest of what decides on the examples' content."""

FOUND_PROPERTY = "found"
"""Baseline: 1 if there is a current model, else 0."""

VERSION_PROPERTY = "version"
"""Baseline: its version among the pushed models."""

TRAINING_KEY_PROPERTY = "training_key"
"""Execution property on Kubeflow: a key of what decides on the candidate; unset in a local run."""

SPLIT_PROPERTY = "split"
"""Evaluation: split on which the model was evaluated."""

BASELINE_PROPERTY = "baseline_version"
"""Evaluation: version of the current model that it compares with, if any."""

MAJORITY_PROPERTY = "share_of_most_frequent_class"
"""Evaluation: majority-class accuracy on that split, 0 to 1."""
