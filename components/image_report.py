"""ImageReport: what was run and what came of it, as a page, for Kubeflow's UI, and for machines."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, component_spec, standard_artifacts

from components.image_example_gen import ImageRejects
from components.metrics_file import METRICS_FILE, write_metrics
from components.model_card import write_card
from components.page.document import render
from components.report_sources import gather_facts
from components.ui_artifacts import (
    CARD_FILE,
    PAGE_FILE,
    ClassificationMetrics,
    Html,
    Markdown,
    Metrics,
    set_classification,
    set_metrics,
    write_text,
)

_INPUTS = {
    "examples": standard_artifacts.Examples,
    "rejects": ImageRejects,
    "anomalies": standard_artifacts.ExampleAnomalies,
    "transformed_examples": standard_artifacts.Examples,
    "model_run": standard_artifacts.ModelRun,
    "baseline": standard_artifacts.Model,
    "evaluation": standard_artifacts.ModelEvaluation,
    "blessing": standard_artifacts.ModelBlessing,
}
_OUTPUTS = {
    "html": Html,
    "metrics": Metrics,
    "classification": ClassificationMetrics,
    "card": Markdown,
}


class Executor(base_executor.BaseExecutor):
    """Gathers the facts once and writes them in each form."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Report on the split that the Evaluator has chosen."""
        given = {name: artifact_utils.get_single_instance(a) for name, a in input_dict.items()}
        made = {name: artifact_utils.get_single_instance(a) for name, a in output_dict.items()}
        # An int in a local run, a double on Kubeflow.
        blessed = bool(given["blessing"].get_custom_property("blessed"))
        facts = gather_facts(given, blessed=blessed, properties=exec_properties)
        write_text(render(facts), made["html"].uri, PAGE_FILE)
        write_text(write_metrics(facts), made["metrics"].uri, METRICS_FILE)
        write_text(write_card(facts), made["card"].uri, CARD_FILE)
        set_metrics(made["metrics"], facts.comparison.measures)
        set_classification(made["classification"], facts.comparison.measures)


class ImageReportSpec(component_spec.ComponentSpec):
    """What the steps before it wrote in; what people, the interface and machines read out."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("pipeline", "code", "preview_fn")
    }
    INPUTS = {name: component_spec.ChannelParameter(type=kind) for name, kind in _INPUTS.items()}
    OUTPUTS = {name: component_spec.ChannelParameter(type=kind) for name, kind in _OUTPUTS.items()}


class ImageReport(base_component.BaseComponent):
    """Reports on a run, whether its model was blessed or not.

    Outputs:
        html: `Html`, one self-contained page.
        metrics: `Metrics`, the numbers over all examples; its payload is `metrics.json`.
        classification: `ClassificationMetrics`, the confusion matrix and the ROC curve.
        card: `Markdown`, the model card.
    """

    SPEC_CLASS = ImageReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self, *, pipeline: str, code: str, preview_fn: str, **inputs: types.BaseChannel
    ) -> None:
        """Take the outputs of the steps before.

        Args:
            pipeline: its name.
            code: digest of all our source files.
            preview_fn: dotted path of a function like `pipeline_def.preview.preview`.
            inputs: a channel for each of the inputs of `ImageReportSpec`, by its name.
        """
        outputs = {name: types.Channel(type=kind) for name, kind in _OUTPUTS.items()}
        super().__init__(
            spec=ImageReportSpec(
                pipeline=pipeline, code=code, preview_fn=preview_fn, **inputs, **outputs
            )
        )
