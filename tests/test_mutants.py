"""Break the most important lines in a copy of the code, and check that a test fails."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.repository import copy_repository


class Mutant(NamedTuple):
    """A line of the code, its replacement, and a test that must fail."""

    file: str
    line: str
    becomes: str
    test: str


MUTANTS = {
    "the split follows from other digits of the hash": Mutant(
        "components/ingest/plan/splits.py",
        "int(key[:13], 16)",
        "int(key[13:26], 16)",
        "tests/ingest/test_stratification.py",
    ),
    "a fingerprint does not see which folder an image is in": Mutant(
        "components/ingest/source/listing.py",
        "({path!r}, {label!r}, {split!r},",
        "({split!r},",
        "tests/ingest/test_listing.py::test_a_fingerprint_covers_each_fact_of_a_file",
    ),
    "a record's checksum is not masked": Mutant(
        "components/records/tfrecord.py",
        "0xA282EAD8",
        "0",
        "tests/records/test_tfrecord.py::test_tensorflow_reads_the_file",
    ),
    "the checkpoint goes before the model is exported": Mutant(
        "components/trainer/run_fn.py",
        "    _export(classifier,",
        "    remove_folder(checkpoints)\n    _export(classifier,",
        "tests/trainer/test_run_fn.py::test_no_failure_after_the_last_step_costs_the_training",
    ),
    "a checkpoint is resumed by other code": Mutant(
        "components/trainer/component.py",
        'exec_properties.get("code_digest") or ""',
        '""',
        "tests/trainer/test_run_fn.py::test_the_executor_passes_on_the_digest_of_the_code",
    ),
    "a model below the majority class is blessed": Mutant(
        "components/evaluation/executor.py",
        "max(config.min_accuracy, accuracy)",
        "config.min_accuracy",
        "tests/evaluation/test_eval_config.py::test_no_model_below_the_majority_class_accuracy",
    ),
    "the current model is pushed again": Mutant(
        "components/push/versions.py",
        "if newest and model_digest(newest) ==",
        "if not newest and model_digest(newest) ==",
        "tests/push/test_component.py::"
        "test_the_model_in_use_is_not_pushed_again_but_gets_the_new_card",
    ),
    "every epoch has the same order": Mutant(
        "components/trainer/input/sampler.py",
        "default_rng([self._seed, epoch])",
        "default_rng([self._seed, 0])",
        "tests/trainer/input/test_dataset.py::test_each_epoch_reads_every_example_once_in_a_new_order",
    ),
    "the cache does not see the code": Mutant(
        "pipeline_def/code_digest.py",
        '+ path.read_bytes() + b"\\0"',
        "",
        "tests/test_code_digest.py::test_changed_code_invalidates_its_steps",
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without its environment and outputs, in which the tests pass."""
    copy = copy_repository(tmp_path_factory.mktemp("mutants") / "repository")
    assert passes(copy, *(mutant.test for mutant in MUTANTS.values()))
    return copy


def passes(copy: Path, *tests: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", *tests]
    # What the copy runs is not measured.
    env = os.environ | {"SLIPCOVER_ENABLED": ""}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.xdist_group("mutants")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_test_fails(copy: Path, name: str) -> None:
    mutant = MUTANTS[name]
    file = copy / mutant.file
    code = file.read_text()
    assert code.count(mutant.line) == 1
    file.write_text(code.replace(mutant.line, mutant.becomes))
    try:
        assert not passes(copy, mutant.test)
    finally:
        file.write_text(code)
