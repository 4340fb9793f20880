"""The graph as a person sees it: one box for each stage, which opens into its steps.

KFP's interface draws every task, artifact and dependency of a layer. Each stage becomes a sub-DAG,
and what steps of other stages read passes through its inputs and outputs. What decides on a hit in
the cache (a step's container, parameters and artifacts) stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline_def.kubeflow.compile.spec_document import SpecDocument, step_of
from pipeline_def.kubeflow.specification import Spec
from pipeline_def.steps import STEPS


@dataclass
class _Stage:
    name: str
    component: Spec = field(default_factory=lambda: {"dag": {"tasks": {}}})
    inputs: Spec = field(default_factory=dict)
    waits: set[str] = field(default_factory=set)

    def receive(self, kind: str, name: str, definition: Spec, source: Spec) -> None:
        """Take an input, a parameter or an artifact, from the layer above."""
        definitions = self.component.setdefault("inputDefinitions", {}).setdefault(kind, {})
        definitions[name] = definition
        self.inputs.setdefault(kind, {})[name] = source

    def give(self, task: str, key: str, definition: Spec) -> None:
        """Give an artifact of one of the steps to the layer above, under the same name."""
        definitions = self.component.setdefault("outputDefinitions", {})
        definitions.setdefault("artifacts", {})[key] = definition
        outputs = self.component["dag"].setdefault("outputs", {}).setdefault("artifacts", {})
        selector = {"producerSubtask": task, "outputArtifactKey": key}
        found = outputs.setdefault(key, {"artifactSelectors": [selector]})
        if found != {"artifactSelectors": [selector]}:
            raise AssertionError(f"Two steps of the stage {self.name} have an output {key}")

    def task(self) -> Spec:
        """Return the task that the layer above has for it."""
        implied = {s["taskOutputArtifact"]["producerTask"] for s in self._artifacts()}
        waits = sorted(self.waits - implied)
        return {
            # KFP 2.5 finds the producer of an artifact by the name for people.
            "taskInfo": {"name": self.name},
            "componentRef": {"name": _component(self.name)},
            "inputs": self.inputs,
            **({"dependentTasks": waits} if waits else {}),
        }

    def _artifacts(self) -> list[Spec]:
        return list(self.inputs.get("artifacts", {}).values())


def _component(stage: str) -> str:
    """Return the name of a stage's component; those of steps have the names of their tasks."""
    return f"stage-{stage}"


def nest_stages(document: SpecDocument) -> None:
    """Put every task into the sub-DAG of its stage, and drop the dependencies that are implied."""
    drop_implied(document)
    places = {task: _stage_of(task) for task in document.tasks}
    stages = {name: _Stage(name) for name in dict.fromkeys(places.values())}
    for task, definition in document.tasks.items():
        stage = stages[places[task]]
        stage.component["dag"]["tasks"][task] = definition
        for name, source in document.sources(task, "parameters").items():
            if given := source.get("componentInputParameter"):
                kind = document.definitions(task, "inputDefinitions", "parameters")[name]
                stage.receive("parameters", given, dict(kind), {"componentInputParameter": given})
        _pass_artifacts(document, task, stages, places)
        _pass_dependencies(definition, stage, places)
    document.components.update({_component(s.name): s.component for s in stages.values()})
    document.spec["root"]["dag"]["tasks"] = {s.name: s.task() for s in stages.values()}


def _stage_of(task: str) -> str:
    return STEPS[step_of(task) or task].stage


def _pass_artifacts(
    document: SpecDocument, task: str, stages: dict[str, _Stage], places: dict[str, str]
) -> None:
    """Let artifacts of other stages reach a task through the stages' inputs and outputs."""
    stage, sources = stages[places[task]], document.sources(task, "artifacts")
    for name, source in sources.items():
        output = source["taskOutputArtifact"]
        producer, key = output["producerTask"], output["outputArtifactKey"]
        if (other := stages[places[producer]]) is stage:
            continue
        made = document.definitions(producer, "outputDefinitions", "artifacts")[key]
        definition = {"artifactType": dict(made["artifactType"])}
        other.give(producer, key, definition)
        above = {"taskOutputArtifact": {"producerTask": other.name, "outputArtifactKey": key}}
        stage.receive("artifacts", key, dict(definition), above)
        sources[name] = {"componentInputArtifact": key}


def _pass_dependencies(definition: Spec, stage: _Stage, places: dict[str, str]) -> None:
    """Keep dependencies on tasks of the stage; for others the stage itself waits."""
    waits = definition.pop("dependentTasks", [])
    stage.waits |= {places[other] for other in waits} - {stage.name}
    if own := [other for other in waits if places[other] == stage.name]:
        definition["dependentTasks"] = own


def drop_implied(document: SpecDocument) -> None:
    """Drop the dependencies of tasks that others imply: TFX lists everything upstream."""
    before = {
        task: {*definition.get("dependentTasks", ()), *_producers(document, task)}
        for task, definition in document.tasks.items()
    }
    for task, definition in document.tasks.items():
        producers = set(_producers(document, task))
        waits = [
            other
            for other in definition.pop("dependentTasks", [])
            if other not in producers
            and not any(_is_before(other, then, before) for then in before[task] - {other})
        ]
        if waits:
            definition["dependentTasks"] = waits


def _producers(document: SpecDocument, task: str) -> Iterator[str]:
    for kind in ("parameters", "artifacts"):
        for source in document.sources(task, kind).values():
            yield from (of["producerTask"] for of in source.values() if _is_output(of))


def _is_output(source: Any) -> bool:
    return isinstance(source, dict) and "producerTask" in source


def _is_before(task: str, then: str, before: dict[str, set[str]]) -> bool:
    """Say whether `task` runs before `then`, directly or not."""
    return task in before[then] or any(_is_before(task, one, before) for one in before[then])
