"""Imports of a step before its own work: a pod that works for seconds must start fast."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_def.kubeflow.specification import LOOKUPS, Spec, pod_of
from pipeline_def.kubeflow.step_interface import StepInterface
from tests.kubeflow.conftest import interface
from tests.nodes import NODES

ROOT = Path(__file__).parents[3]

# As run_step does: the libraries, the executor, then what reads artifacts.
_EXECUTOR = """
from components.host import startup
startup.import_libraries()
from components.storage.tfx_filesystem import register_object_stores
register_object_stores()
import tfx
importlib.import_module({module!r})
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils
"""
_START = "import importlib\nfrom pipeline_def.kubeflow.step import entrypoint\n"
_END = "\nimport json, os, sys\nprint(json.dumps(sorted(sys.modules)), flush=True)\nos._exit(0)"

_NEVER = {"keras.src", "matplotlib.pyplot", "kubernetes", "google.cloud.bigquery", "notebook"}
_MODEL_ANALYSIS = "tensorflow_model_analysis.api"


def modules_after(script: str) -> set[str]:
    """Return the modules that a process has imported after `script`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _START + script + _END],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(found)


def test_lookups_import_neither_tensorflow_nor_tfx(compiled: list[Spec]) -> None:
    paths = [part.lookup for part in interface(compiled[0], LOOKUPS).parts]
    paths += [
        "components.predict.files.look_up",
        "components.trainer.networks.weights_file.look_up",
    ]
    assert all(paths)
    modules = {path.rpartition(".")[0] for path in paths}
    found = modules_after(f"for name in {modules}: importlib.import_module(name)")
    assert found >= modules
    heavy = {"tensorflow", "tfx", "apache_beam", "ml_metadata", "pandas", "kfp", "numpy"}
    assert found & heavy == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Evaluator", "Trainer"])
def test_steps_skip_unused_libraries(compiled: list[Spec], name: str) -> None:
    pod: StepInterface = interface(compiled[0], pod_of(name))
    [step] = [one for one in pod.parts or [pod] if one.step == name]
    found = modules_after(_EXECUTOR.format(module=step.executor.rpartition(".")[0]))
    unused = _NEVER - ({"matplotlib.pyplot"} if name == "Trainer" else set())
    assert found & unused == set()
    assert (_MODEL_ANALYSIS in found) is (name == "Evaluator")
    assert {"tensorflow", "tfx.types"} <= found
    assert name in NODES
