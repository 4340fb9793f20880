"""What is taken from data as people find them."""

import re
from pathlib import Path

import pytest

from components.contract.errors import DataError
from components.ingest.config import IngestConfig
from components.ingest.datasets.record import Origin
from components.ingest.lookup import list_images
from tests.ingest.quirks import ANY, QUIRKS, Quirk, write

_MOST_CHARACTERS = 600
_EXPECTED = {"", "names of the labels", "not in the manifest", "not inside a label folder"}


@pytest.mark.parametrize(
    "quirk", QUIRKS, ids=[f"{quirk.format}: {quirk.quirk}" for quirk in QUIRKS]
)
def test_what_is_taken(quirk: Quirk, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    config = IngestConfig(**write(folder, quirk.files), **quirk.options)
    if not quirk.labels:
        with pytest.raises(DataError, match=quirk.refused) as caught:
            list_images(str(folder), config)
        assert len(str(caught.value)) - str(caught.value).count(str(tmp_path)) < _MOST_CHARACTERS
        return
    listing = list_images(str(folder), config)
    origins = [Origin.decode(file.version) if file.shard else None for file in listing.files]
    taken = [
        (origin.image if origin else file.path, file.label, file.split or ANY)
        for file, origin in zip(listing.files, origins, strict=True)
        if not (origin and origin.problem)
    ]
    images, labels, splits = zip(*taken, strict=True)
    result = images[0], ", ".join(labels), ", ".join(dict.fromkeys(splits))
    assert result == quirk.taken
    reasons = {*listing.skipped.values()} | {origin.problem for origin in origins if origin}
    assert len(reasons - _EXPECTED) == bool(quirk.refused)
    assert all(re.search(quirk.refused, reason) for reason in reasons - _EXPECTED)
