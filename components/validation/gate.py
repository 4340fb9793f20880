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
    statistics_history: Parameter[str] = "",
    config: Parameter[str] = "{}",
) -> OutputDict(passed=int):  # type: ignore[valid-type]
    """Let the run go on when nothing was found for which it must stop.

    The statistics of such a run are added to a folder, for the next span to be compared with.

    Example:
        >>> from components import AnomalyGate, ImageExampleGen, statistics_options
        >>> from tfx.components import ExampleValidator, SchemaGen, StatisticsGen
        >>> example_gen = ImageExampleGen(folder="photos")
        >>> statistics = StatisticsGen(
        ...     examples=example_gen.outputs["examples"], stats_options=statistics_options()
        ... ).outputs["statistics"]
        >>> schema = SchemaGen(statistics=statistics).outputs["schema"]
        >>> validator = ExampleValidator(statistics=statistics, schema=schema)
        >>> gate = AnomalyGate(anomalies=validator.outputs["anomalies"], statistics=statistics)
        >>> sorted(gate.outputs)
        ['passed']

    Args:
        anomalies: of ImageValidator or TFX's ExampleValidator.
        statistics: that were validated.
        statistics_history: folder that the statistics are added to. Empty: they are not kept.
        config: a `ValidationConfig` as JSON: which findings stop the run.

    Raises:
        DataError: names the findings of every split.
    """
    choices = from_json(ValidationConfig, config)
    found = read_findings(anomalies)
    if stopping := [finding for finding in found if finding.stops(choices)]:
        raise DataError(explain_stop(stopping))
    for finding in found:
        _LOGGER.warning("The run goes on, although: %s.", finding)
    if statistics_history:
        add_to_history(statistics_history, statistics)
    return {"passed": 1}


# TFX leaves it with the function.
AnomalyGate.__doc__ = AnomalyGate.test_call.__doc__
