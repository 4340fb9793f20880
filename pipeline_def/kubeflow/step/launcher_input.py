"""What KFP's launcher gives a step, checked once, so that the rest may rely on its form.

Source of the form: `ExecutorInput` in KFP's `pipeline_spec.proto`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.contract.errors import ConfigurationError


def read_executor_input(text: str) -> dict[str, Any]:
    """Parse the value of `--executor_input`.

    Returns:
        `inputs`, with `parameterValues` and `artifacts`, and `outputs`, with `artifacts` and
        `outputFile`; each artifact has a `uri`.

    Raises:
        ConfigurationError: it has another form.
    """
    try:
        given: dict[str, Any] = json.loads(text)
        _check(given, dict, "it")
        for side in ("inputs", "outputs"):
            _check_artifacts(_part(given, side))
        _part(given["inputs"], "parameterValues")
        _check(given["outputs"]["outputFile"], str, "outputFile")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"--executor_input is not what KFP's launcher gives in place of {{{{$}}}}: "
            f"{type(error).__name__} {error}."
        ) from error
    return given


def _check_artifacts(side: dict[str, Any]) -> None:
    for key, listed in _part(side, "artifacts").items():
        for artifact in _check(_check(listed, dict, key)["artifacts"], list, key):
            _check(_check(artifact, dict, key)["uri"], str, f"the URI of {key}")
            _part(artifact, "metadata")
            _part(artifact, "type")


def _part(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of the message that is one itself; the launcher may leave out empty ones."""
    parent[name] = {} if parent.get(name) is None else parent[name]
    part: dict[str, Any] = _check(parent[name], dict, name)
    return part


def _check(value: Any, kind: type, place: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{place} is {value!r:.40}")
    return value


def read_json(text: Any, place: str, kind: type = dict) -> Any:
    """Parse the text of a property or a note that is JSON; what is empty or null stands for {}.

    Raises:
        ConfigurationError: it is not JSON, or of another kind.
    """
    try:
        return _check(json.loads(text or "{}") or {}, kind, "it")
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{place} of the step is not as it was compiled: {error}."
        ) from error


def read_double(value: int, place: str) -> float:
    """Return a number as the launcher means it, which writes 5 for 5.0.

    Raises:
        ConfigurationError: there is no double as large.
    """
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigurationError(f"{place} is a number of {value.bit_length()} bits.") from error


def read_integer(value: Any, place: str) -> int:
    """Return an integer that the launcher gives as a double.

    Raises:
        ConfigurationError: it is no number, or none that is finite.
    """
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigurationError(f"{place} is {value!r}: it must be an integer.") from error


def read_integers(properties: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """Return execution properties, of which those that are named are integers."""
    return {
        key: read_integer(value, key) if key in names else value
        for key, value in properties.items()
    }
