"""What was run, on what, and how large the model is that came of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Something such as span-3, v01, 2026 or 2026-11-20: what it begins with, and its last number.
_NUMBERED = re.compile(r"(?:\d+[-_.])*([A-Za-z]*)[-_]?(\d+)")


@dataclass(frozen=True)
class RunHeader:
    """What was run, on what, with what."""

    pipeline: str
    data: str
    """Folder of the images, a path or a URL."""
    fingerprint: str
    """Fingerprint of the listing of the folder; "" when it is not known."""
    span: int | None
    version: int | None
    code: str
    """Digest of our source files, in hexadecimal."""
    config: Mapping[str, Mapping[str, Any]]
    """Section → field → value, as the steps were given them."""
    versions: Mapping[str, str]
    """Package → version."""
    started: str | None
    """When training began, ISO 8601 in UTC."""
    training_seconds: float | None

    @property
    def title(self) -> str:
        """Name of the data: the last folder that does not just number a span, version or day."""
        numbers = {self.span, self.version}
        for name in reversed(self.data.rstrip("/").split("/")):
            digits = _NUMBERED.fullmatch(name) if self.span is not None else None
            if name and not (digits and (not digits[1] or int(digits[2]) in numbers)):
                return name
        return self.pipeline


@dataclass(frozen=True)
class ExportedModel:
    """How large the model is; None where training did not tell."""

    parameters: int | None = None
    """Number of weights of the network."""
    bytes: int | None = None
    """Size of all files of the model as it is served."""
