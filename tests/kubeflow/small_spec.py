"""A specification of two steps, in the form that our compiler gives it."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_def.kubeflow.specification import Spec

SPEC: Spec = yaml.safe_load("""
pipelineInfo: {name: images}
schemaVersion: 2.1.0
sdkVersion: tfx-1.16.0
deploymentSpec:
  executors:
    Gen_executor:
      container: {image: "r/i:1", command: [python], args: [--step, Gen, --input, "{{$}}"]}
    Train_executor:
      container: {image: "r/i:1", command: [python], args: [--step, Train, --input, "{{$}}"]}
components:
  Gen:
    executorLabel: Gen_executor
    inputDefinitions: {parameters: {data: {parameterType: STRING}}}
    outputDefinitions: &examples
      artifacts:
        examples: {artifactType: {instanceSchema: "title: tfx.Examples\\ntype: object\\n"}}
  Train:
    executorLabel: Train_executor
    inputDefinitions: {<<: *examples, parameters: {steps: {parameterType: NUMBER_INTEGER}}}
root:
  inputDefinitions:
    parameters:
      data: {parameterType: STRING, defaultValue: "gs://b"}
      epochs: {parameterType: NUMBER_INTEGER, defaultValue: 5}
      rate: {parameterType: NUMBER_DOUBLE, defaultValue: 0.1}
      flip: {parameterType: BOOLEAN, defaultValue: false}
  dag:
    tasks:
      Gen:
        componentRef: {name: Gen}
        taskInfo: {name: Gen}
        inputs: {parameters: {data: {componentInputParameter: data}}}
      Train:
        componentRef: {name: Train}
        taskInfo: {name: Train}
        inputs:
          artifacts:
            examples:
              taskOutputArtifact: {producerTask: Gen, outputArtifactKey: examples}
          parameters: {steps: {runtimeValue: {constant: 5.0}}}
""")


def platform(settings: Mapping[str, Any], label: str = "Train_executor") -> Spec:
    """Return a platform document with the settings of one executor."""
    executors = {"deploymentSpec": {"executors": {label: dict(settings)}}}
    return {"platforms": {"kubernetes": executors}}


def write_spec(file: Path) -> Path:
    """Write the specification to a file."""
    file.write_text(yaml.safe_dump(copy.deepcopy(SPEC)))
    return file
