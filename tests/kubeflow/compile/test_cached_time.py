"""Seconds of a cached run: the pods that follow one another, times what a pod took on a cluster."""

import pytest

from pipeline_def.kubeflow.specification import Spec, Specification
from tests.kubeflow.compile.test_compiler import LOOKUPS

# From a run of KFP 2.17.0 on Argo 4.0.5, nested and with a pod for each step, all cached but the
# lookups: seconds of the pods themselves, medians of 21 drivers and 3 lookups, and of the whole.
DRIVER_POD, LOOKUP_POD, WHOLE = 4.0, 6.0, 243.0
MEASURED = ["driver"] * 20 + list(LOOKUPS[:1]) * 3
"""Pods that followed one another in it."""


def pods_in_a_row(spec: Spec) -> list[str]:
    """Return the longest chain of pods if everything is cached that can be."""
    layers = {layer.sub_dag: layer for layer in Specification(spec).layers()}

    def chain(layer: Specification, task: str) -> list[str]:
        definition = layer.tasks[task]
        sources = [
            source
            for kind in ("artifacts", "parameters")
            for one in layer.sources(task, kind).values()
            for source in one.values()
            if isinstance(source, dict)
        ]
        before = {one["producerTask"] for one in sources if "producerTask" in one}
        waits = before.union(definition.get("dependentTasks", []))
        earlier = max((chain(layer, one) for one in sorted(waits)), key=len, default=[])
        inner = layers.get(definition["componentRef"]["name"])
        own = [f"{task}-driver", *([task] if task in LOOKUPS else [])]
        return [*earlier, *own, *(longest(inner) if inner else [])]

    def longest(layer: Specification) -> list[str]:
        return max((chain(layer, task) for task in layer.tasks), key=len)

    return ["root-driver", *longest(layers[""])]


def seconds(pods: list[str], *, requeue: float) -> float:
    """Return the seconds of a chain if Argo goes on `requeue` s after a pod at the earliest."""
    own = [LOOKUP_POD if name in LOOKUPS else DRIVER_POD for name in pods]
    return sum(max(requeue, pod + 1.0) for pod in own)


def test_the_model_agrees_with_the_measured_run() -> None:
    # One lookup took a second slot.
    assert seconds(MEASURED, requeue=10.0) + 10 == pytest.approx(WHOLE, rel=0.02)


@pytest.mark.slow
def test_a_cached_run_takes_two_minutes_or_one_if_argo_goes_on_at_once(
    compiled: list[Spec],
) -> None:
    pods = pods_in_a_row(compiled[0])
    assert pods == [
        *("root-driver", "Data-lookup-driver", "Data-lookup", "ImageExampleGen-driver"),
        *("Statistics-Schema-driver", "Transform-driver", "Trainer-driver"),
        *("BaselineFinder-lookup-driver", "BaselineFinder-lookup"),
        *("Baseline-Evaluator-driver", "Report-Pusher-driver"),
    ]
    # A lookup may take a second slot.
    assert seconds(pods, requeue=10.0) + 10 <= 120
    assert seconds(pods, requeue=1.0) <= 60
