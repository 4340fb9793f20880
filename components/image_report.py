"""ImageReport: what the exported model gets right and wrong, drawn by Kubeflow's interface."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import path_utils

from components.image_evaluator import FLOOR_PROPERTY, SPLIT_PROPERTY
from components.predictions import measure, predict
from components.report_page import Report, render
from components.ui_artifacts import (
    ClassificationMetrics,
    Html,
    Metrics,
    set_classification,
    set_metrics,
    write_page,
)


class Executor(base_executor.BaseExecutor):
    """Runs the model once more, as TFMA keeps no answers, and writes the three outputs."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Report on the split that the Evaluator has chosen."""
        given = {name: artifact_utils.get_single_instance(a) for name, a in input_dict.items()}
        made = {name: artifact_utils.get_single_instance(a) for name, a in output_dict.items()}
        model, evaluation = given["model"], given["evaluation"]
        split = evaluation.get_string_custom_property(SPLIT_PROPERTY)
        old = path_utils.is_old_model_artifact(model)
        model_path = path_utils.serving_model_path(model.uri, old)
        measures = measure(predict(given["examples"].uri, split, model_path))
        report = Report(
            split=split,
            # An int in a local run, a double on Kubeflow.
            blessed=bool(given["blessing"].get_custom_property("blessed")),
            floor=evaluation.get_float_custom_property(FLOOR_PROPERTY),
            measures=measures,
        )
        write_page(render(report), made["html"].uri)
        set_metrics(made["metrics"], measures)
        set_classification(made["classification"], measures)


class ImageReportSpec(component_spec.ComponentSpec):
    """Examples, the model and the Evaluator's verdict in; what the interface draws out."""

    PARAMETERS: dict[str, Any] = {}
    INPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS = {
        "html": component_spec.ChannelParameter(type=Html),
        "metrics": component_spec.ChannelParameter(type=Metrics),
        "classification": component_spec.ChannelParameter(type=ClassificationMetrics),
    }


class ImageReport(base_component.BaseComponent):
    """Reports on the model, whether it was blessed or not.

    Outputs:
        html: `Html`, one self-contained page.
        metrics: `Metrics`, the numbers over all examples.
        classification: `ClassificationMetrics`, the confusion matrix and the ROC curve.
    """

    SPEC_CLASS = ImageReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        model: types.BaseChannel,
        evaluation: types.BaseChannel,
        blessing: types.BaseChannel,
    ) -> None:
        """Take ImageExampleGen's examples, Trainer's model and both outputs of ImageEvaluator."""
        spec = ImageReportSpec(
            examples=examples,
            model=model,
            evaluation=evaluation,
            blessing=blessing,
            html=types.Channel(type=Html),
            metrics=types.Channel(type=Metrics),
            classification=types.Channel(type=ClassificationMetrics),
        )
        super().__init__(spec=spec)
