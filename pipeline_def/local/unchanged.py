"""Decides without TFX whether a run would take every step from the cache.

It takes seconds to import TFX and TensorFlow. If nothing that decides on the results has changed
since the last run, and its results are on disk, all steps are cached; otherwise TFX decides.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
from collections.abc import Mapping
from typing import Any

from components.contract.errors import UserError
from components.contract.properties import EXAMPLES_KEY_PROPERTY, LookupInput
from components.evaluation.baseline_lookup import find_unusable
from components.storage.folder import read_bytes
from pipeline_def.code_digest import program_digest
from pipeline_def.config.config import Config
from pipeline_def.layout import Layout
from pipeline_def.local.output.integrity import list_complete
from pipeline_def.runs.record import RunRecord, Step, Steps, now, read_records
from pipeline_def.steps import EXAMPLE_GEN, STEPS

_LISTING = "listing"
"""The property of ImageExampleGen that names the listing of this run."""


def digest_program(config: Config) -> str:
    """Return 16 hexadecimal digits that change with all that decides, beside `config` and images.

    Raises:
        UserError: a file that `config` names cannot be read.
    """
    program = program_digest(config.model.build_fn, config.augmentation.fn)
    schema = config.validation.schema
    content = read_bytes(schema) if schema else b""
    return hashlib.sha256(program.encode() + content).hexdigest()[:16]


def find_unchanged(
    config: Config, configuration: Mapping[str, Any], *, program: str, listing: str
) -> RunRecord | None:
    """Return the last run if this one would take all its results from the cache.

    Args:
        config: of this run, resolved.
        configuration: as its record has it.
        program: see `digest_program`.
        listing: file of the listing of the images.
    """
    layout = Layout(config.output)
    if not config.cache:
        return None
    try:
        records = read_records(config.output)
        last = records[-1] if records else None
        if last is None or (last.state, last.program) != ("done", program):
            return None
        if last.configuration != json.loads(json.dumps(configuration)):
            return None
        used = {output.uri for step in last.steps.values() for output in step.outputs.values()}
        if find_unusable(layout.pushed) or not used <= list_complete(layout):
            return None
        return last if all(_finds_the_same(last, name, listing) for name in last.steps) else None
    except UserError:
        # The step that raises it is recorded as failed.
        return None


def _finds_the_same(record: RunRecord, name: str, listing: str) -> bool:
    """Repeat the lookup of a step, if it has one, and compare what it finds."""
    step = record.steps[name]
    if not (properties := step.properties):
        return True
    lookup = importlib.import_module(STEPS[name].code[0])
    outputs = {
        output.uri: output for step in record.steps.values() for output in step.outputs.values()
    }
    inputs = {
        key: LookupInput(
            uri,
            int(outputs[uri].properties.get("span") or 0),
            outputs[uri].properties.get(EXAMPLES_KEY_PROPERTY, ""),
        )
        for key, [uri] in step.inputs.items()
    }
    given = properties | ({_LISTING: listing} if name == EXAMPLE_GEN.id else {})
    # TFX omits properties that have their default.
    values = lookup.look_up(inputs, given)
    return all((properties.get(key) or "") == (value or "") for key, value in values.items())


def list_again(record: RunRecord) -> Steps:
    """Yield the name of each step, and the function that takes its results of `record` again."""
    for name, step in record.steps.items():
        yield name, functools.partial(_take_again, step)


def _take_again(step: Step) -> Step:
    return dataclasses.replace(step, state="cached", started=now(), seconds=0.0, made_by="")
