"""A model without TensorFlow, which answers with the colour of an image."""

import io
import threading
import time
from collections.abc import Sequence
from typing import Any

from PIL import Image

from pipeline_def.apps.serve.limits import RequestError
from pipeline_def.apps.serve.model import Model
from tests.pictures import encode


class FakeModel(Model):
    """Answers after `seconds`; a broken file fails the whole batch, as TensorFlow does."""

    def __init__(
        self, version: str = "1", *, seconds: float = 0.0, says_errors: bool = False
    ) -> None:
        self.version, self._seconds, self._says_errors = version, seconds, says_errors
        outputs = ["label", "probabilities", *(["error"] if says_errors else [])]
        self.signatures: dict[str, Any] = {
            "serving_default": {"inputs": {"image_bytes": {}}, "outputs": {}},
            "serving_examples": {"inputs": {"examples": {}}, "outputs": {}},
        }
        self.served_outputs = {"serving_default": outputs, "explain": ["picture_bytes"]}
        self.batches: list[int] = []
        self._running = threading.Lock()

    def predict(self, signature: str, files: Sequence[bytes]) -> list[dict[str, Any]]:
        assert self._running.acquire(blocking=False), "asked twice at once"
        try:
            self.batches.append(len(files))
            time.sleep(self._seconds)
            return [self._answer(signature, file) for file in files]
        finally:
            self._running.release()

    def _answer(self, signature: str, file: bytes) -> dict[str, Any]:
        try:
            red, green, blue = Image.open(io.BytesIO(file)).convert("RGB").getpixel((0, 0))  # type: ignore[misc]
        except Exception as error:
            if self._says_errors:
                return {"error": b"no image", "label": b"", "probabilities": [0.0, 0.0, 0.0]}
            raise RequestError(400, "cannot decode") from error
        if signature == "explain":
            return {"picture_bytes": file}
        answer = {
            "label": b"%d %d %d" % (red, green, blue),
            "probabilities": [red / 255, green / 255, blue / 255],
        }
        return answer | ({"error": b""} if self._says_errors else {})


def png(
    red: int,
    green: int = 0,
    blue: int = 0,
    *,
    kind: str = "PNG",
    size: tuple[int, int] = (8, 6),
    **options: Any,
) -> bytes:
    """A file of one colour."""
    return encode(Image.new("RGB", size, (red, green, blue)), kind, **options)
