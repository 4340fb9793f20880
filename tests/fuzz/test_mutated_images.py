from __future__ import annotations

import pytest

from tests.fuzz.mutated_images import run


@pytest.mark.slow
def test_damaged_images_are_rejected_or_decoded_alike_everywhere() -> None:
    ends = run(6000, seed=1)
    assert set(ends) == {"rejected", "kept", "transcoded"}
    assert sum(ends.values()) == 6000
    # Of each end there are many, or the damage would be too great or too small to tell anything.
    assert min(ends["rejected"], ends["kept"], ends["transcoded"]) > 200
