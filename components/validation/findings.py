"""What ExampleValidator found, with the severity that the configuration gives it."""

import itertools
from collections.abc import Iterable, Sequence

from components.contract.anomalies import Anomaly, read_anomalies
from components.validation.config import ValidationConfig

_MAX_NAMED = 5


def stops_run(found: Anomaly, config: ValidationConfig) -> bool:
    """Return whether an anomaly stops the run."""
    return (config.anomalies if found.kind == "anomaly" else config.drift) == "stop"


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


def read_findings(uri: str, split_names: str) -> list[Anomaly]:
    """Read the findings of ExampleValidator, sorted by split and feature."""
    return [*itertools.chain.from_iterable(read_anomalies(uri, split_names).values())]


def describe_warnings(findings: Iterable[Anomaly], config: ValidationConfig) -> list[str]:
    """Describe the findings that do not stop the run."""
    return [str(finding) for finding in findings if not stops_run(finding, config)]
