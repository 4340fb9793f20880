"""Steps that find out what TFX's drivers would, before the cache is asked about the next step.

KFP decides on a hit of the cache before anything of ours runs, and a folder has the same name when
its images have changed. What a lookup finds is a parameter of the step after it, and so a part of
the key: changed data or a new baseline are never a hit, unchanged ones are.
"""

from __future__ import annotations

import json
from typing import Any

from pipeline_def.kubeflow.compile.spec_document import SpecDocument, executor_label, lookup_of
from pipeline_def.kubeflow.specification import Spec
from pipeline_def.kubeflow.step_interface import RESOLVED_PARAMETER


def add_lookup(document: SpecDocument, component: Any) -> None:
    """Put a step that is never cached before `component`, if its driver looks anything up."""
    driver = component.driver_class
    if driver.__module__.startswith("tfx.dsl."):
        return
    task, name = component.id, lookup_of(component.id)
    consumer, label = document.tasks[task], executor_label(name)
    inputs = _only(document.components[task], "inputDefinitions", driver)
    outputs: Spec = {"parameters": {RESOLVED_PARAMETER: {"parameterType": "STRING"}}}
    if not inputs.get("artifacts"):
        # Nothing is written there: its URI tells the lookup where the pipeline's folder is.
        kind = {"instanceSchema": "title: system.Artifact\ntype: object\n"}
        outputs["artifacts"] = {"place": {"artifactType": kind}}
    document.components[name] = {
        "executorLabel": label,
        "inputDefinitions": inputs,
        "outputDefinitions": outputs,
    }
    document.executors[label] = {"container": {"image": document.container(task)["image"]}}
    waits = consumer.get("dependentTasks", [])
    own = _only(consumer, "inputs", driver)
    # It waits for what it reads, and may run beside what only its step reads.
    before = sorted({s["taskOutputArtifact"]["producerTask"] for s in own["artifacts"].values()})
    document.tasks[name] = {
        "componentRef": {"name": name},
        "taskInfo": {"name": name},
        "inputs": own,
        **({"dependentTasks": before} if before else {}),
    }
    consumer["dependentTasks"] = sorted([*waits, name])
    output = {"producerTask": name, "outputParameterKey": RESOLVED_PARAMETER}
    document.bind(task, RESOLVED_PARAMETER, "STRING", {"taskOutputParameter": output})


def _only(owner: Spec, side: str, driver: Any) -> Spec:
    """Copy the inputs that the lookup reads: the artifacts and the properties that it names."""
    copied: Spec = json.loads(json.dumps(owner.get(side, {})))
    wanted = {"artifacts": driver.lookup_inputs, "parameters": driver.lookup_properties}
    return {kind: {name: copied[kind][name] for name in names} for kind, names in wanted.items()}
