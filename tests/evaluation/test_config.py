from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from components.contract.errors import ConfigurationError, UserError
from components.evaluation.config import EvaluationConfig, MetricName, Threshold
from components.evaluation.metrics.classification_metrics import METRICS
from pipeline_def.config.command_line import parse
from tests.shared_parsers import make_parser


def test_names_are_those_of_the_metrics() -> None:
    assert get_args(MetricName) == METRICS


FILE = """
evaluation:
  thresholds:
  - {metric: accuracy, slice: class, at_least: 0.7}
  - {metric: ece, at_most: 0.1, max_worsening: 0.02}
"""


def test_thresholds_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    parser = make_parser("program", "description")
    config, _ = parse(parser, ["--config", str(tmp_path / "config.yaml")])
    assert config.evaluation.thresholds == [
        Threshold("accuracy", slice="class", at_least=0.7),
        Threshold("ece", at_most=0.1, max_worsening=0.02),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{metric: acuracy, at_least: 0.7}", "acuracy"),
        ("{metric: accuracy, slice: colour, at_least: 0.7}", "slice is 'colour'"),
        ("{metric: accuracy, at_least: high}", "high"),
    ],
)
def test_mistakes_in_a_file_are_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(f"evaluation:\n  thresholds: [{text}]\n")
    with pytest.raises(UserError, match=message):
        parse(make_parser("program", "description"), ["--config", str(tmp_path / "config.yaml")])


def test_thresholds_that_demand_nothing_or_the_impossible() -> None:
    with pytest.raises(ConfigurationError, match="set at_least, at_most or max_worsening"):
        Threshold("accuracy")
    with pytest.raises(ConfigurationError, match="max_worsening is -1"):
        Threshold("accuracy", max_worsening=-1)
    with pytest.raises(ConfigurationError, match=r"size is not in evaluation\.slices"):
        EvaluationConfig(slices=["class"], thresholds=[Threshold("auc", slice="size", at_least=1)])
    with pytest.raises(ConfigurationError, match=r"evaluation\.min_accuracy is 1\.5"):
        EvaluationConfig(min_accuracy=1.5)
