"""Any value of any type in any field, and any file: one sentence, at once, or a configuration."""

import itertools
import json
import math
import operator
import time
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from components.contract.configuration import from_dict, from_json, to_json
from components.contract.error_messages import LARGEST, list_choices
from components.contract.errors import ConfigurationError
from components.evaluation.config import Threshold
from components.trainer.config.recipes import Recipe
from pipeline_def.config.config import Config
from pipeline_def.config.kubeflow import StepConfig, Toleration
from pipeline_def.config.options import describe_chosen, find_ineffective, list_options, show_value
from pipeline_def.config.yaml_file import MOST_BYTES, write_yaml
from tests.config.command import parsed

ODD: list[Any] = [
    *(None, True, -1, 0, 1, 2, LARGEST + 1, 10**400, 0.5, 1e300, math.nan, math.inf, object()),
    *("", "../x", "a/b", "\0", "auto", "none", "ftp://x", "train", "class"),
    *([], [""], [0, 1], [["a"]], {}, {"": None}, {"train": 1.0}, {"a": ["b"]}, {None: {}}),
]


def test_a_line_end_in_a_name_is_escaped() -> None:
    with pytest.raises(ConfigurationError, match=r"ingest has no field '\\n'\."):
        Config(ingest={"\n": None})  # type: ignore[arg-type]


def check_sentence(error: Exception) -> None:
    assert "\n" not in str(error)
    assert 10 < len(str(error)) < 700


@pytest.mark.parametrize("kind", [Threshold, StepConfig, Toleration])
def test_a_value_of_any_field_of_an_item(kind: Any) -> None:
    """What is taken survives the way to an executor."""
    fields = {"metric": "loss", "at_most": 1} if kind is Threshold else {}
    for name, value in itertools.product(get_type_hints(kind), ODD):
        try:
            item = kind(**{**fields, name: value})
        except ConfigurationError as error:
            check_sentence(error)
            continue
        json.loads(to_json(item), parse_constant=pytest.fail)
        assert from_json(kind, to_json(item)) == item


# Values of options with rules of their own, with the options that they need.
SPECIAL: dict[str, list[Any]] = {
    "name": ["1e3", "007", "off", "null"],
    "ingest.columns": [["0x1", "~"]],
    "ingest.features": [{"image": "1e3", "label": "null"}],
    "ingest.splits": [{"train": 0.5, "eval": 0.25, "off": 0.25}],
    "model.name": ["resnet50"],
    "model.build_fn": ["my.network"],
    "augmentation.fn": ["my.function"],
    "input.cache": ["file"],
    "input.cache_folder": ["1.5e3"],
    "training.fixed": [["training.epochs", "model.name"]],
    "transform.size": [64],
    "transform.storage": ["png"],
    "augmentation.min_crop_area": [0.3],
    "augmentation.rotation": [1e-05],
    "evaluation.thresholds": [[Threshold(metric="loss", slice="class=off", at_most=2)]],
    "kubeflow.steps": [
        {"all": StepConfig(cpu=2, memory="16Gi", env={"1": "off"}, tolerations=[Toleration()])}
    ],
    "export.formats": [["onnx", "int8"]],
    "tracking.mlflow": ["http://localhost:5000"],
}
NEEDED: dict[str, dict[str, Any]] = {
    "ingest.columns": {"ingest.manifest": "x.csv"},
    "input.cache": {"input.cache_folder": "x"},
    "input.cache_folder": {"input.cache": "file"},
    "training.weight_decay": {"training.optimizer": "adamw"},
}


def configure(values: dict[str, Any]) -> Config | None:
    """Return a configuration; None if the values are not allowed."""
    fields: dict[str, Any] = {"given": sorted(values)}
    for name, value in values.items():
        section, _, field = name.rpartition(".")
        (fields.setdefault(section, {}) if section else fields)[field] = value
    try:
        return from_dict(Config, fields)
    except ConfigurationError as error:
        check_sentence(error)
        return None


@pytest.mark.parametrize("option", [*list_options()])
def test_any_value_of_any_option_passes_through_a_run(option: str, tmp_path: Path) -> None:
    kind, default = list_options()[option].kind, list_options()[option].default
    passed = []
    for value in [*ODD, *SPECIAL.get(option, ()), *list_choices(kind)]:
        values = {**NEEDED.get(option, {}), option: value}
        if (config := configure(values)) is None:
            continue
        read = operator.attrgetter(option)(config)
        passed += [read] if read != default else []
        # As `run` and `inspect` show it, and as a file and the command line give it back.
        recipe = Recipe("small", "", {option: read})
        shown = [describe_chosen((), recipe), *find_ineffective([option], config, recipe)]
        assert all(show_value(read) in text and "\n" not in text for text in shown)
        assert parsed("--config", file_with(tmp_path, write_yaml(values))) == config
        words = [f"--{k}={v if isinstance(v, str) else show_value(v)}" for k, v in values.items()]
        assert value == "null" or parsed(*words) == config
        # As the steps and `run.json` hold it.
        json.loads(to_json(config), parse_constant=pytest.fail)
        assert from_json(Config, to_json(config)) == config
    assert passed, "no value is allowed but the default"


def file_with(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(n + 1)}: &{chr(n + 1)} [{', '.join([f'*{chr(n)}'] * 9)}]\n" for n in range(97, 110)
)
FILES = {
    "deep lists": ("data: " + "[" * 600, "nested too deeply"),
    "deep blocks": ("".join(f"{' ' * n}a:\n" for n in range(60)), "unknown option 'a'"),
    "an anchor bomb": (BOMB, "unknown option 'a'"),
    "a list that holds itself": ("data: &a [*a, *a]", "data is .* it must be text"),
    "a large file": ("#" * (MOST_BYTES + 1), f"larger than {MOST_BYTES:,} bytes"),
    "marked as a date": ("data: !!timestamp x", "has an invalid value"),
    "marked as a number": ("training: {epochs: !!int x}", "has an invalid value"),
    "more digits than Python reads": ("training: {epochs: " + "9" * 5_000 + "}", "digits"),
    "a key of no kind": ("? [a]\n: b", "is not YAML"),
    "an object": ("data: !!python/object:os.system x", "is not YAML"),
    "an unknown alias": ("data: *b", "is not YAML"),
    "two documents": ("data: a\n---\ndata: b\n", "is not YAML"),
}


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES.keys())
def test_an_odd_file_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    path = file_with(tmp_path, text)
    # The first call imports.
    parsed()
    began = time.process_time()
    with pytest.raises(ConfigurationError, match=message) as caught:
        parsed("--config", path)
    # Coverage makes it several times as slow.
    assert time.process_time() - began < 8
    check_sentence(caught.value)


@pytest.mark.parametrize("value", ["[" * 600, "&a [*a]"], ids=["[", "&"])
def test_an_odd_value_on_the_command_line(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(f"--evaluation.thresholds={value}")
    check_sentence(caught.value)
    assert parsed("--data", value).data == value
