"""The driver of ImageExampleGen: span, version and a fingerprint that sees moved files."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.example_gen import driver, input_processor, utils

from components.contract.configuration import from_json
from components.ingest.config import IngestConfig
from components.ingest.listing import check_labels, list_images
from components.ingest.spans import find_span


class _InputProcessor(input_processor.InputProcessor):
    """Lists the folder for the driver; TFX stores the fingerprint and keys its cache by it."""

    def __init__(self, folder: str, splits: Any, config: IngestConfig) -> None:
        super().__init__(splits=splits, range_config=None)
        self._folder = folder
        self._config = config

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        found = find_span(self._folder, self._config.span)
        return found.span, found.version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        return pattern

    def get_latest_span(self) -> int:
        return find_span(self._folder).span

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        folder = find_span(self._folder, span, version).folder
        listing = list_images(folder, self._config.manifest)
        check_labels(listing)
        return listing.fingerprint()


class Driver(driver.FileBasedDriver):
    """Resolves span, version and fingerprint of the folder before the cache is looked up."""

    LOOKED_UP_FROM = ("input_base", "config")

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """Add `span`, `version` and `input_fingerprint`."""
        self._config = from_json(IngestConfig, exec_properties["config"])
        resolved: dict[str, Any] = super().resolve_exec_properties(
            exec_properties, *arguments, **options
        )
        return resolved

    @staticmethod
    def look_up(
        input_dict: dict[str, list[types.Artifact]], exec_properties: dict[str, Any]
    ) -> dict[str, Any]:
        """Resolve the same on Kubeflow Pipelines, which runs no drivers: in a step before this."""
        config = from_json(IngestConfig, exec_properties["config"])
        processor = _InputProcessor(exec_properties["input_base"], [], config)
        span, version = processor.resolve_span_and_version()
        return {
            utils.SPAN_PROPERTY_NAME: span,
            utils.VERSION_PROPERTY_NAME: version,
            utils.FINGERPRINT_PROPERTY_NAME: processor.get_input_fingerprint(span, version),
        }

    def get_input_processor(
        self, splits: Any, range_config: Any = None, input_base_uri: str | None = None
    ) -> input_processor.InputProcessor:
        """Return the processor that lists `input_base_uri`."""
        return _InputProcessor(str(input_base_uri), splits, self._config)
