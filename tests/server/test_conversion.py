import asyncio
import contextlib
import io
import multiprocessing
import shutil
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from PIL import Image

from components.images.check_result import Rejected
from components.images.options import ImageOptions
from pipeline_def.local.server.batching import Picture
from pipeline_def.local.server.conversion import Converter
from pipeline_def.local.server.rest import RequestError


@pytest.fixture
def converter() -> Iterator[Converter]:
    """A converter with one process."""
    # A queue takes the loop that it is first awaited in.
    converter = Converter(ImageOptions(), 1)
    yield converter
    converter.close()


def encode(kind: str, side: int = 64) -> Picture:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (200, 100, 50)).save(buffer, kind)
    return Picture(buffer.getvalue(), side**2)


async def convert(converter: Converter, file: Picture) -> object:
    async with converter.convert(file) as converted:
        if isinstance(converted, Picture) and isinstance(converted.encoded, Path):
            assert Image.open(converted.encoded).getpixel((0, 0)) == (200, 100, 50)
        return converted


@pytest.mark.slow
def test_files_are_converted_kept_or_refused_and_none_is_left(converter: Converter) -> None:
    async def main() -> None:
        kept = encode("PNG")
        assert await convert(converter, kept) is kept
        refused = await convert(converter, Picture(b"II*\0 broken", 64**2))
        assert isinstance(refused, Rejected)
        converted = await convert(converter, encode("TIFF"))
        assert isinstance(converted, Picture)
        assert isinstance(converted.encoded, Path)
        await asyncio.sleep(0)
        assert not converted.encoded.exists()

    asyncio.run(main())


@pytest.mark.slow
def test_a_conversion_ends_with_its_request_or_process_and_the_next_one_works(
    converter: Converter,
) -> None:
    def children() -> list[BaseProcess]:
        return [child for child in multiprocessing.active_children() if child.is_alive()]

    async def main() -> None:
        await convert(converter, encode("TIFF"))
        [process] = children()
        slow = asyncio.create_task(convert(converter, encode("GIF", 5000)))
        await asyncio.sleep(0.05)
        slow.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await slow
        assert isinstance(await convert(converter, encode("TIFF")), Picture)
        assert not process.is_alive()
        [process] = children()
        process.kill()
        process.join()
        # A process that died between two requests costs neither.
        assert isinstance(await convert(converter, encode("TIFF")), Picture)
        [process] = children()
        slow = asyncio.create_task(convert(converter, encode("GIF", 5000)))
        await asyncio.sleep(0.05)
        process.kill()
        # The image is not to blame.
        with pytest.raises(RequestError, match="lack of memory") as busy:
            await slow
        assert busy.value.status == 503

    asyncio.run(main())


@pytest.mark.slow
def test_a_folder_that_a_cleaner_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cleaned = Converter(ImageOptions(), 1)

    async def main() -> None:
        for _ in range(2):
            assert isinstance(await convert(cleaned, encode("TIFF")), Picture)
            [folder] = tmp_path.iterdir()
            shutil.rmtree(folder)
        tmp_path.rmdir()
        with pytest.raises(RequestError, match="cannot convert"):
            await convert(cleaned, encode("TIFF"))

    asyncio.run(main())
    cleaned.close()
