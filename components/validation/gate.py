"""AnomalyGate: stops the run for what ExampleValidator found, or says it and goes on.

ExampleValidator by itself only records a property; every node after it would run all the same.
"""

# No `from __future__ import annotations` here: TFX reads the annotations as objects.
import logging

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputDict, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts

from components.contract.configuration import from_json
from components.contract.errors import UserError
from components.validation.config import ValidationConfig
from components.validation.findings import Finding, read_findings
from components.validation.statistics_history import keep_statistics

_NAMED_ANOMALIES = 5

_LOGGER = logging.getLogger(__name__)


@component
def AnomalyGate(
    anomalies: InputArtifact[standard_artifacts.ExampleAnomalies],
    statistics: InputArtifact[standard_artifacts.ExampleStatistics],
    kept_statistics: Parameter[str],
    config: Parameter[str] = "{}",
) -> OutputDict(passed=int):  # type: ignore[valid-type]
    """Let the run go on when nothing was found for which it must stop.

    What goes on is kept in the folder `kept_statistics`, for the next span to be compared with.

    Raises:
        UserError: names the anomalies of every split.
    """
    choices = from_json(ValidationConfig, config)
    found = read_findings(anomalies)
    stopping = [finding for finding in found if finding.stops(choices)]
    if stopping:
        raise UserError(_say(stopping))
    for finding in found:
        _LOGGER.warning("The run goes on, although: %s.", finding)
    keep_statistics(kept_statistics, statistics)
    return {"passed": 1}


def _say(stopping: list[Finding]) -> str:
    kinds = {finding.kind for finding in stopping}
    wrong = "do not fit their schema" if "anomaly" in kinds else "have changed"
    named = " | ".join(map(str, stopping[:_NAMED_ANOMALIES]))
    more = len(stopping) - _NAMED_ANOMALIES
    ways = []
    if "anomaly" in kinds:
        ways.append("Repair the images or their folders, or the schema if they are right")
    if "drift" in kinds:
        ways.append("If the change is wanted, run once with --validation.drift warn")
    return (
        f"The examples {wrong}: {named}{f' | and {more} more' if more > 0 else ''}. "
        f"{'. '.join(ways)}."
    )
