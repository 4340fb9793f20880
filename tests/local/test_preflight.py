import glob
from typing import Any

import pytest

from components.contract.errors import ConfigurationError
from components.trainer.config.training import TrainingConfig
from pipeline_def.local.first_look import check_accelerator


@pytest.mark.parametrize("kind", ["gpu", "workers"])
def test_an_accelerator_that_is_not_there(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "glob", lambda pattern: [])
    with pytest.raises(ConfigurationError, match=f"accelerator is {kind}, but .* cpu or auto"):
        check_accelerator(TrainingConfig(accelerator=kind))
    monkeypatch.setattr(glob, "glob", lambda pattern: [pattern])
    check_accelerator(TrainingConfig(accelerator="gpu"))
