"""Finds span, version and listing of a folder of images; imports neither TensorFlow nor TFX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.contract.configuration import from_json
from components.contract.lookup import LookupInput
from components.ingest.config import IngestConfig
from components.ingest.listing import check_labels, list_images
from components.ingest.listing_file import LISTING_PROPERTY, write_listing
from components.ingest.spans import find_span


def look_up(inputs: Mapping[str, LookupInput], properties: Mapping[str, Any]) -> dict[str, Any]:
    """List the folder, under the names that TFX's driver of FileBasedExampleGen gives."""
    config = from_json(IngestConfig, properties["config"])
    found = find_span(properties["input_base"], config.span)
    listings = properties["listings"]
    listing = list_images(found.folder, config.manifest, config.splits)
    check_labels(listing)
    return {
        "span": found.span,
        "version": found.version,
        "input_fingerprint": listing.fingerprint(),
        LISTING_PROPERTY: write_listing(listing, listings) if listings else "",
    }
