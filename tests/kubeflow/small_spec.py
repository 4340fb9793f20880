"""A specification of two steps, in the form that our compiler gives it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_def.kubeflow.specification import Spec

_STRING = {"parameterType": "STRING"}
_EXAMPLES = {"artifactType": {"instanceSchema": "title: tfx.Examples\ntype: object\n"}}


def _container(step: str) -> Spec:
    arguments = ["--step", step, "--input", "{{$}}"]
    return {"container": {"image": "r/i:1", "command": ["python"], "args": arguments}}


SPEC: Spec = {
    "pipelineInfo": {"name": "images"},
    "schemaVersion": "2.1.0",
    "sdkVersion": "tfx-1.16.0",
    "deploymentSpec": {
        "executors": {"Gen_executor": _container("Gen"), "Train_executor": _container("Train")}
    },
    "components": {
        "Gen": {
            "executorLabel": "Gen_executor",
            "inputDefinitions": {"parameters": {"data": _STRING}},
            "outputDefinitions": {"artifacts": {"examples": _EXAMPLES}},
        },
        "Train": {
            "executorLabel": "Train_executor",
            "inputDefinitions": {
                "artifacts": {"examples": _EXAMPLES},
                "parameters": {"steps": {"parameterType": "NUMBER_INTEGER"}},
            },
        },
        "stage-train": {
            "inputDefinitions": {"artifacts": {"examples": _EXAMPLES}},
            "dag": {
                "tasks": {
                    "Train": {
                        "componentRef": {"name": "Train"},
                        "taskInfo": {"name": "Train"},
                        "inputs": {
                            "artifacts": {"examples": {"componentInputArtifact": "examples"}},
                            "parameters": {"steps": {"runtimeValue": {"constant": 5.0}}},
                        },
                    }
                }
            },
        },
    },
    "root": {
        "inputDefinitions": {
            "parameters": {
                "data": {"parameterType": "STRING", "defaultValue": "gs://b"},
                "epochs": {"parameterType": "NUMBER_INTEGER", "defaultValue": 5},
                "rate": {"parameterType": "NUMBER_DOUBLE", "defaultValue": 0.1},
                "flip": {"parameterType": "BOOLEAN", "defaultValue": False},
            }
        },
        "dag": {
            "tasks": {
                "Gen": {
                    "componentRef": {"name": "Gen"},
                    "taskInfo": {"name": "Gen"},
                    "inputs": {"parameters": {"data": {"componentInputParameter": "data"}}},
                },
                "train": {
                    "componentRef": {"name": "stage-train"},
                    "taskInfo": {"name": "train"},
                    "inputs": {
                        "artifacts": {
                            "examples": {
                                "taskOutputArtifact": {
                                    "producerTask": "Gen",
                                    "outputArtifactKey": "examples",
                                }
                            }
                        }
                    },
                },
            }
        },
    },
}


def platform(settings: Mapping[str, Any], label: str = "Train_executor") -> Spec:
    """Return a platform document with the settings of one executor."""
    executors = {"deploymentSpec": {"executors": {label: dict(settings)}}}
    return {"platforms": {"kubernetes": executors}}


def write_spec(file: Path, *more: Spec) -> Path:
    """Write the specification, and the documents after it, to a file."""
    file.write_text(yaml.safe_dump_all([copy.deepcopy(SPEC), *more]))
    return file
