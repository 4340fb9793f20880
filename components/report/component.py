"""ImageReport: a run and its model as a page, a model card, and metrics for machines."""

import os
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import artifact_utils, component_spec, standard_artifacts
from tfx.utils import path_utils

from components.contract.artifact_files import (
    CARD_FILE,
    METRICS_FILE,
    PAGE_FILE,
    make_folders,
    write_text,
)
from components.contract.image_tables import SUSPECTS_FILE, write_suspects
from components.contract.tfx_classes import (
    Artifacts,
    ClassificationMetrics,
    Html,
    ImageRejects,
    ImageSuspects,
    Markdown,
    Metrics,
)
from components.report.metrics_file import (
    CLASSIFICATION_FILE,
    set_classification,
    set_metrics,
    write_metrics,
)

_INPUTS = {
    "examples": standard_artifacts.Examples,
    "rejects": ImageRejects,
    "anomalies": standard_artifacts.ExampleAnomalies,
    "transformed_examples": standard_artifacts.Examples,
    "model": standard_artifacts.Model,
    "model_run": standard_artifacts.ModelRun,
    "evaluation": standard_artifacts.ModelEvaluation,
}
# Without the model there are no heat maps.
_OPTIONAL = frozenset({"model"})
_OUTPUTS = {
    "html": Html,
    "metrics": Metrics,
    "classification": ClassificationMetrics,
    "card": Markdown,
    "suspects": ImageSuspects,
}

# Named, not imported: stages exchange artifacts.
_PREVIEW_FN = f"{__package__.rpartition('.')[0]}.trainer.input.augment.preview"


class ImageReportSpec(component_spec.ComponentSpec):
    """Inputs from the earlier steps; outputs for people, the interface and machines."""

    PARAMETERS = {
        name: component_spec.ExecutionParameter(type=str)
        for name in ("pipeline", "code", "preview_fn")
    }
    INPUTS = {
        name: component_spec.ChannelParameter(type=kind, optional=name in _OPTIONAL)
        for name, kind in _INPUTS.items()
    }
    OUTPUTS = {name: component_spec.ChannelParameter(type=kind) for name, kind in _OUTPUTS.items()}


class Executor(base_executor.BaseExecutor):
    """Gathers the facts once and writes them as page, metrics, matrix, card and suspects."""

    def Do(
        self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]
    ) -> None:
        """Report on the split that the Evaluator chose."""
        # They import Matplotlib and scikit-learn, for which no training needs to wait.
        from components.report.card import write_card
        from components.report.inputs import gather_facts
        from components.report.page.document import render

        given = {name: artifact_utils.get_single_instance(a) for name, a in input_dict.items()}
        outputs = {name: artifact_utils.get_single_instance(a) for name, a in output_dict.items()}
        # TFX puts the SavedModel into a folder of its own.
        model = path_utils.serving_model_path(given["model"].uri) if "model" in given else ""
        facts = gather_facts(given, properties=exec_properties, model=model)
        write_text(render(facts), outputs["html"].uri, PAGE_FILE)
        write_text(write_metrics(facts), outputs["metrics"].uri, METRICS_FILE)
        write_text(write_card(facts), outputs["card"].uri, CARD_FILE)
        rows = facts.suspects.rows if facts.suspects else ()
        # On Kubeflow nobody has made the folder.
        make_folders(outputs["suspects"].uri)
        write_suspects(os.path.join(outputs["suspects"].uri, SUSPECTS_FILE), rows)
        set_metrics(outputs["metrics"], facts.metrics)
        drawn = set_classification(outputs["classification"], facts.metrics)
        write_text(drawn, outputs["classification"].uri, CLASSIFICATION_FILE)


class ImageReport(base_component.BaseComponent):
    """Reports on a run, whether its model was blessed or not.

    Example:
        >>> from components import ImageReport
        >>> from tfx.dsl.components.common.importer import Importer
        >>> given = {
        ...     name: Importer(source_uri=name, artifact_type=kind.type).outputs["result"]
        ...     for name, kind in ImageReport.SPEC_CLASS.INPUTS.items()
        ... }
        >>> report = ImageReport(**given)
        >>> sorted(report.outputs)
        ['card', 'classification', 'html', 'metrics', 'suspects']

    Outputs:
        html: `Html`, one self-contained page.
        metrics: `Metrics` over all examples; its payload is `metrics.json`.
        classification: `ClassificationMetrics`, the confusion matrix.
        card: `Markdown`, the model card.
        suspects: `ImageSuspects`, the images that a person should look at.
    """

    SPEC_CLASS = ImageReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        pipeline: str = "images",
        code: str = "",
        preview_fn: str = _PREVIEW_FN,
        **inputs: types.BaseChannel,
    ) -> None:
        """Connect the outputs of the earlier steps.

        Args:
            pipeline: name of the pipeline.
            code: digest of all our source files, if known.
            preview_fn: dotted path of a function that draws augmented images; by default Trainer's.
            inputs: a channel for each input of `ImageReportSpec`, by name; `model` is optional.
        """
        outputs = {name: types.Channel(type=kind) for name, kind in _OUTPUTS.items()}
        super().__init__(
            spec=ImageReportSpec(
                pipeline=pipeline, code=code, preview_fn=preview_fn, **inputs, **outputs
            )
        )
