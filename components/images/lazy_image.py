"""Images that are decoded otherwise than by Pillow, when their pixels are needed."""

from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image


class LazyImage(Image.Image):
    """An image of which only the header has been read."""

    is_animated = False

    def __init__(
        self,
        image_format: str,
        mode: str,
        size: tuple[int, int],
        *,
        info: Mapping[str | tuple[int, int], Any],
        decode: Callable[[], Image.Image],
    ) -> None:
        """State what the header says; `decode` returns an image of this mode."""
        super().__init__()
        self.format, self._mode, self._size = image_format, mode, size
        self.info = {**info}
        self._decode = decode

    def load(self) -> Any:
        """Decode the pixels, once."""
        if self._im is None:
            image = self._decode()
            self.im, self._size = image.im, image.size
        return super().load()
