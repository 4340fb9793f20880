"""AnomalyGate: stops the run for what ExampleValidator found, or warns and lets it go on.

ExampleValidator by itself only records a property; every node after it would run all the same.
"""

# No `from __future__ import annotations` here: TFX reads the annotations as objects.
import logging

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputDict, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts

from components.contract.configuration import from_json
from components.contract.errors import DataError
from components.validation.anomalies import read_findings
from components.validation.config import ValidationConfig
from components.validation.finding import explain_stop
from components.validation.statistics_history import add_to_history

_LOGGER = logging.getLogger(__name__)


@component
def AnomalyGate(
    anomalies: InputArtifact[standard_artifacts.ExampleAnomalies],
    statistics: InputArtifact[standard_artifacts.ExampleStatistics],
    statistics_history: Parameter[str],
    config: Parameter[str],
) -> OutputDict(passed=int):  # type: ignore[valid-type]
    """Let the run go on when nothing was found for which it must stop.

    The statistics of such a run are added to the folder `statistics_history`, for the next span to
    be compared with.

    Raises:
        DataError: names the findings of every split.
    """
    choices = from_json(ValidationConfig, config)
    found = read_findings(anomalies)
    if stopping := [finding for finding in found if finding.stops(choices)]:
        raise DataError(explain_stop(stopping))
    for finding in found:
        _LOGGER.warning("The run goes on, although: %s.", finding)
    add_to_history(statistics_history, statistics)
    return {"passed": 1}
