import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline_def.apps.serve.batching import Batcher, BatchLimits, Picture, Prediction
from tests.apps.serve.serving import FakeModel, png


def run(
    model: FakeModel,
    limits: BatchLimits,
    use: Callable[[Batcher], Coroutine[Any, Any, None]],
    others_coming: Callable[[], bool] = lambda: False,
) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as threads:
            ask = functools.partial(model.predict, "serving_default")
            await use(Batcher(ask, threads, limits, others_coming))

    asyncio.run(main())


def label(answer: Prediction | Exception) -> bytes:
    assert isinstance(answer, dict), answer
    return bytes(answer["label"])


def test_requests_that_come_meanwhile_are_asked_for_together_and_answered_apart() -> None:
    model = FakeModel(seconds=0.01)

    async def use(batcher: Batcher) -> None:
        pictures = [[Picture(png(r, g), 48) for g in range(2)] for r in range(20)]
        answers = await asyncio.gather(*map(batcher.predict, pictures))
        for red, predictions in enumerate(answers):
            assert list(map(label, predictions)) == [b"%d 0 0" % red, b"%d 1 0" % red]

    run(model, BatchLimits(images=16), use)
    assert sum(model.batches) == 40
    assert max(model.batches) == 16
    assert len(model.batches) == 3


def test_a_batch_has_no_more_pixels_than_it_may_but_always_an_image() -> None:
    model = FakeModel(seconds=0.01)

    async def use(batcher: Batcher) -> None:
        sizes = [10, 200, 60, 30, 20]
        await batcher.predict([Picture(png(1), pixels) for pixels in sizes])

    run(model, BatchLimits(pixels=100), use)
    assert model.batches == [1, 1, 2, 1]


def test_an_image_waits_for_others_only_while_some_are_coming() -> None:
    model = FakeModel()

    async def use(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.predict([Picture(png(1), 48)]))
        await asyncio.sleep(0.005)
        second = asyncio.create_task(batcher.predict([Picture(png(2), 48)]))
        await asyncio.gather(first, second)

    run(model, BatchLimits(delay=0.03), use)
    assert model.batches == [1, 1]
    model.batches.clear()
    run(model, BatchLimits(delay=0.03), use, lambda: True)
    assert model.batches == [2]
