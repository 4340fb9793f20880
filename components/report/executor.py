"""The executor of ImageReport: gathers the facts once and writes them in every form."""

import os
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.contract.artifact_files import (
    CARD_FILE,
    METRICS_FILE,
    PAGE_FILE,
    make_folders,
    write_text,
)
from components.contract.image_tables import SUSPECTS_FILE, write_suspects
from components.contract.tfx_classes import Artifacts
from components.report.metrics_file import (
    CLASSIFICATION_FILE,
    set_classification,
    set_metrics,
    write_metrics,
)


class Executor(base_executor.BaseExecutor):
    """Writes page, metrics, matrix, card and suspects."""

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
