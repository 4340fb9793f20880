"""Nests the tasks in stages, so that Kubeflow's interface draws one box a stage.

The interface draws every task, artifact and dependency of a layer. Each stage becomes a sub-DAG,
whose inputs and outputs pass artifacts between stages. What decides on a cache hit (a step's
container, parameters and artifacts) stays as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipeline_def.kubeflow.specification import Spec, Specification, parts_of, step_of
from pipeline_def.steps import STEPS


@dataclass
class _Stage:
    name: str
    component: Spec = field(default_factory=lambda: {"dag": {"tasks": {}}})
    inputs: Spec = field(default_factory=dict)
    waits: set[str] = field(default_factory=set)

    def receive(self, kind: str, name: str, definition: Spec, source: Spec) -> None:
        """Add an input, a parameter or an artifact, from the layer above."""
        definitions = self.component.setdefault("inputDefinitions", {}).setdefault(kind, {})
        definitions[name] = definition
        self.inputs.setdefault(kind, {})[name] = source

    def give(self, task: str, key: str, definition: Spec) -> None:
        """Pass an artifact of a step to the layer above, under the same name."""
        definitions = self.component.setdefault("outputDefinitions", {})
        definitions.setdefault("artifacts", {})[key] = definition
        outputs = self.component["dag"].setdefault("outputs", {}).setdefault("artifacts", {})
        selector = {"producerSubtask": task, "outputArtifactKey": key}
        found = outputs.setdefault(key, {"artifactSelectors": [selector]})
        if found != {"artifactSelectors": [selector]}:
            raise AssertionError(f"Two steps of the stage {self.name} have an output {key}")

    def task(self) -> Spec:
        """Return the stage's task in the layer above."""
        sources = self.inputs.get("artifacts", {}).values()
        implied = {source["taskOutputArtifact"]["producerTask"] for source in sources}
        waits = sorted(self.waits - implied)
        return {
            # KFP 2.5 finds the producer of an artifact by the name for people.
            "taskInfo": {"name": self.name},
            "componentRef": {"name": f"stage-{self.name}"},
            "inputs": self.inputs,
            **({"dependentTasks": waits} if waits else {}),
        }


def nest_stages(document: Specification) -> None:
    """Move every task into the sub-DAG of its stage."""
    places = {task: STEPS[step_of(parts_of(task)[0])].stage for task in document.tasks}
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
    document.components.update({f"stage-{s.name}": s.component for s in stages.values()})
    document.spec["root"]["dag"]["tasks"] = {s.name: s.task() for s in stages.values()}


def _pass_artifacts(
    document: Specification, task: str, stages: dict[str, _Stage], places: dict[str, str]
) -> None:
    """Pass artifacts of other stages to a task through the stages' inputs and outputs."""
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
    """Keep dependencies on tasks of the stage; the stage itself waits for others."""
    waits = definition.pop("dependentTasks", [])
    stage.waits |= {places[other] for other in waits} - {stage.name}
    if own := [other for other in waits if places[other] == stage.name]:
        definition["dependentTasks"] = own


def drop_implied(document: Specification) -> None:
    """Drop dependencies that others imply: TFX lists everything upstream."""
    producers = {task: set(_producers(document, task)) for task in document.tasks}
    waits = {
        task: producers[task] | set(definition.pop("dependentTasks", ()))
        for task, definition in document.tasks.items()
    }

    def before(task: str) -> set[str]:
        return waits[task].union(*map(before, waits[task]))

    for task, definition in document.tasks.items():
        implied = set().union(*map(before, waits[task]), producers[task])
        if needed := sorted(waits[task] - implied):
            definition["dependentTasks"] = needed


def _producers(document: Specification, task: str) -> Iterator[str]:
    for kind in ("parameters", "artifacts"):
        for source in document.sources(task, kind).values():
            for reference in source.values():
                if isinstance(reference, dict) and "producerTask" in reference:
                    yield reference["producerTask"]
