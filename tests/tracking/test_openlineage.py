"""OpenLineage's own classes, generated from its specification, take our events."""

import dataclasses
import importlib
import pkgutil
from typing import Any

import pytest
from openlineage.client import generated
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from pipeline_def.runs.record import RunRecord
from pipeline_def.tracking.facts import describe_run
from pipeline_def.tracking.openlineage import list_events

MODULES = [
    importlib.import_module(f"{generated.__name__}.{module.name}")
    for module in pkgutil.iter_modules(generated.__path__)
]


def read_facets(facets: dict[str, Any]) -> dict[str, Any]:
    """Make each facet of the class that its schema names, which knows its fields."""
    found = {}
    for name, facet in facets.items():
        place, _, kind = facet["_schemaURL"].partition("#/$defs/")
        [facet_class] = [vars(module)[kind] for module in MODULES if kind in vars(module)]
        assert place.rpartition("/")[2] == f"{kind}.json"
        fields = {key: value for key, value in facet.items() if not key.startswith("_")}
        found[name] = facet_class(producer=facet["_producer"], **fields)
    return found


def read_event(event: dict[str, Any]) -> RunEvent:
    job, run = event["job"], event["run"]
    return RunEvent(
        eventType=RunState[event["eventType"]],
        eventTime=event["eventTime"],
        run=Run(run["runId"], facets=read_facets(run["facets"])),
        job=Job(job["namespace"], job["name"], facets=read_facets(job["facets"])),
        inputs=[
            InputDataset(one["namespace"], one["name"], facets=read_facets(one["facets"]))
            for one in event["inputs"]
        ],
        outputs=[
            OutputDataset(
                one["namespace"],
                one["name"],
                facets=read_facets(one["facets"]),
                outputFacets=read_facets(one.get("outputFacets", {})),
            )
            for one in event["outputs"]
        ],
        producer=event["producer"],
    )


@pytest.mark.parametrize("state", ["done", "failed", "stopped"])
def test_every_event_and_facet_is_of_the_specification(record: RunRecord, state: Any) -> None:
    events = [*list_events(describe_run(dataclasses.replace(record, state=state, error="No.")))]
    facets: set[str] = set()
    for event in events:
        read_event(event)
        facets |= event["run"]["facets"].keys()
        facets.update(*(one["facets"] for one in event["outputs"]))
    assert {"schema", "dataQualityMetrics", "version", "parent", "tags"} <= facets
    assert ("errorMessage" in facets) == (state == "failed")


def test_a_field_that_the_specification_lacks_is_found(record: RunRecord) -> None:
    [event, *_] = list_events(describe_run(record))
    event["run"]["facets"]["tags"]["tag"] = []
    with pytest.raises(TypeError, match="tag"):
        read_event(event)
