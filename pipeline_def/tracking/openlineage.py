"""The events of a run in OpenLineage: the pipeline and each step, with inputs and outputs.

Source: spec/OpenLineage.json 2-0-2 and spec/facets of OpenLineage/OpenLineage. IDs follow from the
run's record, so that events sent twice are the same ones.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from components.contract.example import INDEX_FILE
from components.records.shard_files import count_examples
from pipeline_def.runs.record import Output, RunRecord, Step
from pipeline_def.steps import EXAMPLE_GEN, PUSHER, SCHEMA_GEN
from pipeline_def.tracking.facts import TrackedRun, find_output
from pipeline_def.tracking.service import Service

_PRODUCER = "https://github.com/tensorflow/tfx"
_SPEC = "https://openlineage.io/spec"
_ENDS = {"done": "COMPLETE", "cached": "COMPLETE", "failed": "FAIL", "stopped": "ABORT"}
_FEATURE = re.compile(r'^feature \{\n  name: "([^"]+)"\n(?:.*\n)*?  type: (\w+)', re.MULTILINE)

Event = dict[str, Any]


def send(run: TrackedRun, service: Service, *, whole: bool = True) -> str:
    """Send the events of a run, or only those of its steps; return the address that took them.

    Raises:
        ServiceError: the service refused an event, or did not respond.
    """
    base, path = service.url, "api/v1/lineage"
    if given := urlsplit(service.url).path.strip("/"):
        base, path = service.url.removesuffix(f"/{given}"), given
    receiver = Service(base, service.variable)
    for event in list_events(run):
        if not whole and "parent" not in event["run"]["facets"]:
            continue
        receiver.post(path, "take an OpenLineage event", event)
    return f"{base}/{path}"


def list_events(run: TrackedRun) -> Iterator[Event]:
    """Yield the start of the pipeline, start and end of each step, and the end of the pipeline."""
    record = run.record
    datasets = _Datasets(record)
    images = [datasets.images()] if record.data.folder else []
    pushed = [datasets.pushed(run.tags)] if record.pushed else []
    tags = {"tags": _facet("TagsRunFacet", "1-0-0", tags=_tags(run.tags))}
    yield _event(record, "", "START", record.started, tags)
    for name, step in record.steps.items():
        inputs = [datasets.described(uri) for uris in step.inputs.values() for uri in uris]
        outputs = [datasets.described(output.uri) for output in step.outputs.values()]
        facets = {"tags": _facet("TagsRunFacet", "1-0-0", tags=_tags(_step_tags(record, name)))}
        yield _event(record, name, "START", step.started, facets)
        if step.state in _ENDS:
            inputs += [] if step.inputs else images
            outputs += pushed if name == PUSHER.id else []
            end = _end(step, record.ended)
            facets |= _failure(record, step.state)
            yield _event(record, name, _ENDS[step.state], end, facets, inputs, outputs)
    if record.state in _ENDS:
        ended, facets = record.ended or record.started, tags | _failure(record, record.state)
        yield _event(record, "", _ENDS[record.state], ended, facets, images, pushed)


def _end(step: Step, ended: str | None) -> str:
    if step.seconds is None:
        return ended or step.started
    return (datetime.fromisoformat(step.started) + timedelta(0, step.seconds)).isoformat()


def _step_tags(record: RunRecord, name: str) -> dict[str, str]:
    step = record.steps[name]
    tags = {"code_digest": record.code.get(name, ""), "state": step.state, "made_by": step.made_by}
    return {key: value for key, value in tags.items() if value}


def _failure(record: RunRecord, state: str) -> Event:
    if state != "failed":
        return {}
    message = {"message": record.error, "programmingLanguage": "python"}
    return {"errorMessage": _facet("ErrorMessageRunFacet", "1-0-1", **message)}


def _event(
    record: RunRecord,
    step: str,
    kind: str,
    time: str,
    facets: Event,
    inputs: list[Event] | None = None,
    outputs: list[Event] | None = None,
) -> Event:
    """Return an event of a step, or of the pipeline if `step` is ""."""
    job = {"namespace": record.host or "default", "name": record.pipeline}
    run_id = _run_id(record, "")
    kinds = {"processingType": "BATCH", "integration": "TFX", "jobType": "PIPELINE"}
    if step:
        parent = _facet("ParentRunFacet", "1-2-0", run={"runId": run_id}, job=job)
        facets = {**facets, "parent": parent}
        job = {**job, "name": f"{record.pipeline}.{step}"}
        kinds["jobType"] = "TASK"
    version = record.versions.get("tfx", "unknown")
    engine = _facet("ProcessingEngineRunFacet", "1-1-1", name="TFX", version=version)
    return {
        "eventType": kind,
        "eventTime": time,
        "run": {"runId": _run_id(record, step), "facets": {**facets, "processing_engine": engine}},
        "job": {**job, "facets": {"jobType": _facet("JobTypeJobFacet", "2-0-4", **kinds)}},
        "inputs": [{k: v for k, v in one.items() if k != "outputFacets"} for one in inputs or []],
        "outputs": outputs or [],
        "producer": _PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def _run_id(record: RunRecord, step: str) -> str:
    return str(
        uuid.uuid5(uuid.NAMESPACE_URL, f"{record.host}/{record.pipeline}/{record.id}/{step}")
    )


def _facet(kind: str, release: str, /, **fields: Any) -> Event:
    url = f"{_SPEC}/facets/{release}/{kind}.json#/$defs/{kind}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **fields}


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value, "source": "TFX"} for key, value in tags.items()]


class _Datasets:
    """The datasets of a run, with facets for what is known about each."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._outputs = {
            output.uri: output for step in record.steps.values() for output in step.outputs.values()
        }
        self._fields: dict[str, list[dict[str, str]]] = {}
        schema = find_output(record, SCHEMA_GEN.id, "schema")
        examples = find_output(record, EXAMPLE_GEN.id, "examples")
        for output in (schema, examples):
            if schema and output:
                self._fields[output.uri] = _read_fields(schema.uri)

    def images(self) -> Event:
        """Return the folder of images, whose version is its fingerprint."""
        data = self._record.data
        return _dataset(data.folder, version=_version(data.fingerprint))

    def pushed(self, tags: Mapping[str, str]) -> Event:
        """Return the pushed model, whose version is that of the push."""
        assert self._record.pushed
        pushed = self._record.pushed
        made = _facet("TagsDatasetFacet", "1-0-0", tags=_tags(tags))
        return _dataset(pushed.destination, version=_version(pushed.version), tags=made)

    def described(self, uri: str) -> Event:
        """Return an artifact with its schema, counts and size, as far as they are known."""
        output = self._outputs.get(uri)
        if output is None:
            return _dataset(uri)
        facets, rows = {}, None
        if fields := self._fields.get(uri):
            facets["schema"] = _facet("SchemaDatasetFacet", "1-2-0", fields=fields)
        if output.type == "Examples" and (index := _read_index(output)):
            rows = sum(count_examples(index).values())
            classes = len({label for split in index.get("labels", {}).values() for label in split})
            column = {"image/class/text": {"count": rows, "distinctCount": classes}}
            quality = {"rowCount": rows, "columnMetrics": column}
            facets["dataQualityMetrics"] = _facet(
                "DataQualityMetricsDatasetFacet", "1-0-0", **quality
            )
        if not os.path.exists(uri):
            return _dataset(uri, **facets)
        files = [os.path.join(d, name) for d, _, names in os.walk(uri) for name in names]
        size = {"size": sum(map(os.path.getsize, files)), "fileCount": len(files)}
        counts = {**size, **({} if rows is None else {"rowCount": rows})}
        statistics = _facet("OutputStatisticsOutputDatasetFacet", "1-0-2", **counts)
        return {**_dataset(uri, **facets), "outputFacets": {"outputStatistics": statistics}}


def _dataset(uri: str, **facets: Event) -> Event:
    """Return a dataset, named as OpenLineage names files and objects."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return {"namespace": "file", "name": uri, "facets": facets}
    bucket, _, name = rest.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": name or "/", "facets": facets}


def _version(version: str) -> Event:
    return _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=version)


def _read_fields(folder: str) -> list[dict[str, str]]:
    """Return name and type of each feature in a schema."""
    try:
        with open(os.path.join(folder, "schema.pbtxt"), encoding="utf-8") as file:
            return [{"name": n, "type": t} for n, t in _FEATURE.findall(file.read())]
    except (OSError, ValueError):
        return []


def _read_index(output: Output) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return output.read_json(INDEX_FILE)
    return {}
