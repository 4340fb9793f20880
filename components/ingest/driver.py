"""The driver of ImageExampleGen: span, version, and a listing with its fingerprint."""

from __future__ import annotations

from typing import Any

from tfx.components.example_gen import driver, utils

from components.contract.artifacts import Artifacts
from components.contract.configuration import from_json
from components.ingest.config import IngestConfig
from components.ingest.listing import check_labels, list_images
from components.ingest.listing_file import LISTING_PROPERTY, write_listing
from components.ingest.spans import find_span


class Driver(driver.Driver):
    """Lists the folder before the cache is looked up; TFX keys its cache by what it resolves."""

    LOOKED_UP_FROM = ("input_base", "config", "listings")
    LOOKED_AT = ()

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *_: Any, **__: Any
    ) -> dict[str, Any]:
        """Add `span`, `version`, `input_fingerprint` and `listing`."""
        return {**exec_properties, **self.look_up({}, exec_properties)}

    @staticmethod
    def look_up(input_dict: Artifacts, exec_properties: dict[str, Any]) -> dict[str, Any]:
        """List the folder; on Kubeflow Pipelines, which runs no drivers, in a step before."""
        config = from_json(IngestConfig, exec_properties["config"])
        found = find_span(exec_properties["input_base"], config.span)
        listings = exec_properties["listings"]
        listing = list_images(found.folder, config.manifest, config.splits)
        check_labels(listing)
        return {
            utils.SPAN_PROPERTY_NAME: found.span,
            utils.VERSION_PROPERTY_NAME: found.version,
            utils.FINGERPRINT_PROPERTY_NAME: listing.fingerprint(),
            LISTING_PROPERTY: write_listing(listing, listings) if listings else "",
        }
