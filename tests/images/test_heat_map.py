from __future__ import annotations

import numpy as np

from components.images.thumbnails import SMALLEST_HEAT_MAP, lay_over


def test_hot_is_bright_and_cold_is_dark() -> None:
    heat = np.zeros((8, 8), np.float32)
    heat[:, 4:] = 1
    shown = lay_over(heat, np.full((8, 8, 3), 128, np.uint8))
    assert shown.shape == (SMALLEST_HEAT_MAP, SMALLEST_HEAT_MAP, 3)
    cold, hot = shown[:, :24].mean(), shown[:, -24:].mean()
    assert hot > 2 * cold
    # The picture is to be seen through both.
    lighter = lay_over(heat, np.full((8, 8, 3), 255, np.uint8))
    assert (lighter.astype(int) - shown > 20).all()
    large = np.zeros((200, 200, 3), np.uint8)
    assert lay_over(heat, large).shape == large.shape
