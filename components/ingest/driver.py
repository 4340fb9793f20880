"""The driver of ImageExampleGen: span, version, and a listing with its fingerprint."""

from __future__ import annotations

from typing import Any

from tfx.components.example_gen import driver

from components.ingest.lookup import look_up


class Driver(driver.Driver):
    """Lists the folder before the cache is looked up; TFX keys its cache by what it resolves."""

    LOOKUP = staticmethod(look_up)
    LOOKED_UP_FROM = ("input_base", "config", "listings")
    LOOKED_AT = ()

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *_: Any, **__: Any
    ) -> dict[str, Any]:
        """Add `span`, `version`, `input_fingerprint` and `listing`."""
        return {**exec_properties, **look_up({}, exec_properties)}
