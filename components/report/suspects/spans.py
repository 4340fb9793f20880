"""Describes the images of each span, so that drift over time is seen."""

import json

import numpy as np
from numpy.typing import NDArray

from components.contract.properties import CONFIG_PROPERTY, PATTERN_PROPERTY, PropertiesLike
from components.contract.span_pattern import name_spans
from components.images.pixel_statistics import STATISTICS
from components.report.facts import SpanFacts
from components.report.suspects.odd_images import Columns


def describe_spans(examples: PropertiesLike, columns: Columns) -> tuple[SpanFacts, ...]:
    """Return the spans of `ingest.window`, the oldest first; none without a window.

    Args:
        examples: the artifact, with the configuration and the folder of ingest.
        columns: of the table of images.
    """
    config = json.loads(examples.get_string_custom_property(CONFIG_PROPERTY) or "{}")
    pattern = examples.get_string_custom_property(PATTERN_PROPERTY)
    # Examples of earlier versions have no pattern.
    if not (config.get("window") and pattern):
        return ()
    spans = np.array(name_spans(pattern, columns["path"]))
    known = sorted({*spans.tolist()} - {""}, key=lambda name: (len(name), name))
    return tuple(_describe(name, columns, spans == name) for name in known)


def _describe(name: str, columns: Columns, chosen: NDArray[np.bool_]) -> SpanFacts:
    labels, counts = np.unique(columns["label"][chosen].astype(str), return_counts=True)
    images = int(chosen.sum())
    return SpanFacts(
        name,
        images,
        dict(zip(labels.tolist(), (counts / images).tolist(), strict=True)),
        {
            statistic: tuple(np.nanpercentile(columns[statistic][chosen], (25, 50, 75)).tolist())
            for statistic in STATISTICS
            if statistic in columns
        },
    )
