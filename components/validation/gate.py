"""AnomalyGate: stops the run because of ExampleValidator's findings, or warns.

ExampleValidator itself only records a property; the steps after it would run anyway.
"""

import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict

from tfx import types
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputDict, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import artifact_utils, standard_artifacts

from components.contract.anomalies import Anomaly, read_anomalies
from components.contract.configuration import from_json
from components.contract.errors import DataError
from components.contract.properties import EXAMPLES_KEY_PROPERTY
from components.storage.folder import replace_file
from components.storage.transfer import remove_folder
from components.validation.config import ValidationConfig
from components.validation.lookup import ENTRY_FILE, HistoryEntry, list_history
from components.validation.tfdv_files import read_statistics, statistics_file

_LOGGER = logging.getLogger(__name__)
_MAX_ENTRIES = 30
_MAX_NAMED = 5


@component
def AnomalyGate(
    anomalies: InputArtifact[standard_artifacts.ExampleAnomalies],
    statistics: InputArtifact[standard_artifacts.ExampleStatistics],
    statistics_history: Parameter[str] = "",
    config: Parameter[str] = "{}",
) -> OutputDict(passed=int):  # type: ignore[valid-type]
    """Stop the run if a finding requires it; otherwise keep its statistics.

    The statistics are added to a folder, so that the next run can be compared with them.

    Example:
        >>> from components import AnomalyGate, ImageExampleGen, ImageStatisticsGen
        >>> from tfx.components import ExampleValidator, SchemaGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> statistics_gen = ImageStatisticsGen(examples=example_gen.outputs["examples"])
        >>> statistics = statistics_gen.outputs["statistics"]
        >>> schema = SchemaGen(statistics=statistics).outputs["schema"]
        >>> validator = ExampleValidator(statistics=statistics, schema=schema)
        >>> gate = AnomalyGate(anomalies=validator.outputs["anomalies"], statistics=statistics)
        >>> sorted(gate.outputs)
        ['passed']

    Args:
        anomalies: output of ImageValidator or TFX's ExampleValidator.
        statistics: the statistics that were validated.
        statistics_history: folder that the statistics are added to. Empty: they are not kept.
        config: a `ValidationConfig` as JSON, which decides what stops the run.

    Raises:
        DataError: findings stop the run; the message names them.
    """
    choices = from_json(ValidationConfig, config)
    by_split = read_anomalies(anomalies.uri, anomalies.split_names).values()
    findings = [finding for of_split in by_split for finding in of_split]
    stopping = [finding for finding in findings if choices.stops(finding.kind)]
    if any(finding.kind == "drift" for finding in stopping):
        key = statistics.get_string_custom_property(EXAMPLES_KEY_PROPERTY)
        history = list_history(statistics_history) if key and statistics_history else []
        if any(entry.examples_key == key for entry in history):
            # An earlier run on the same examples has accepted the change.
            stopping = [finding for finding in stopping if finding.kind != "drift"]
    if stopping:
        raise DataError(explain_stop(stopping))
    for finding in findings:
        _LOGGER.warning("The run continues despite: %s.", finding)
    if statistics_history:
        add_to_history(statistics_history, statistics)
    return {"passed": 1}


def explain_stop(findings: Sequence[Anomaly]) -> str:
    """Explain why a run stops and what to do."""
    kinds = {finding.kind for finding in findings}
    wrong = "do not fit their schema" if "anomaly" in kinds else "have changed"
    named = " | ".join(map(str, findings[:_MAX_NAMED]))
    more = len(findings) - _MAX_NAMED
    ways = []
    if "anomaly" in kinds:
        ways.append("Correct the images or their folders, or the schema if they are right")
    if "drift" in kinds:
        ways.append("If the change is intended, run once with --validation.drift warn")
    return (
        f"The examples {wrong}: {named}{f' | and {more} more' if more > 0 else ''}. "
        f"{'. '.join(ways)}."
    )


# The decorator leaves the docstring on the function.
AnomalyGate.__doc__ = AnomalyGate.test_call.__doc__


def add_to_history(folder: str, statistics: types.Artifact) -> None:
    """Copy statistics to `folder`, unless the newest entry is of the same examples.

    Only the newest 30 entries are kept.
    """
    entries = list_history(folder)
    key = statistics.get_string_custom_property(EXAMPLES_KEY_PROPERTY)
    if entries and key and entries[-1].examples_key == key:
        return
    # Keeps two runs within one second in order.
    now = max([int(time.time()), *(entry.time + 1 for entry in entries)])
    target = os.path.join(folder, str(now))
    for split in artifact_utils.decode_split_names(statistics.split_names):
        content = read_statistics(statistics.uri, split).SerializeToString(deterministic=True)
        replace_file(statistics_file(target, split), content)
    # The span is a double on Kubeflow.
    entry = HistoryEntry(now, int(statistics.span or 0), key)
    facts = json.dumps(asdict(entry), sort_keys=True)
    replace_file(os.path.join(target, ENTRY_FILE), facts.encode())
    for entry in entries[: max(0, len(entries) + 1 - _MAX_ENTRIES)]:
        remove_folder(os.path.join(folder, str(entry.time)))
