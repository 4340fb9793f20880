"""What a request is refused with: a status, and a sentence in the JSON of TensorFlow Serving."""

from __future__ import annotations

import json


class Refused(Exception):
    """The request is not answered; status and text say why."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the status of HTTP and the text."""
        super().__init__(text)
        self.status = status


def to_json(text: str) -> bytes:
    """Write an error as a client of TensorFlow Serving expects it."""
    return json.dumps({"error": text}).encode()
