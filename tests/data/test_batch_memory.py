from __future__ import annotations

import numpy as np

from pipeline_def.data.host_calls import BatchMemory


def test_memory_is_used_again_only_when_no_batch_lies_in_it() -> None:
    memory = BatchMemory()
    first = memory.take((4, 8))
    first[:] = 1
    second = memory.take((4, 8))
    assert not np.shares_memory(first, second)
    assert second.ctypes.data % 64 == 0
    address, part = first.ctypes.data, first[1:2]
    del first
    assert memory.take((4, 8)).ctypes.data != address
    np.testing.assert_array_equal(part, 1)
    del part
    assert memory.take((4, 8)).ctypes.data == address
    assert memory.take((5, 8)).shape == (5, 8)
