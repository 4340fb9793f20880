"""A quick look at a folder, from a sample of its images, without TensorFlow or Beam."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from components.contract.errors import UserError
from components.images.check import probe_image
from components.images.check_result import Rejected, usable
from components.ingest.config import IngestConfig
from components.ingest.listing import ImageFile, Listing
from components.storage.fetch import read_files


@dataclass(frozen=True)
class Suspect:
    """A file of the sample that ingest would most likely reject."""

    path: str
    category: str
    reason: str


@dataclass(frozen=True)
class Survey:
    """What a sample of the images shows."""

    formats: Mapping[str, int]
    """Pillow's name of the format → images."""
    sizes: tuple[tuple[int, int], ...]
    """Width and height in pixels of each image that could be read."""
    suspects: tuple[Suspect, ...]
    stored_share: float
    """Bytes that ingest would write for each byte of the files."""
    images_per_second: float
    """Read and checked by one thread."""

    @property
    def sampled(self) -> int:
        """Number of files looked at."""
        return len(self.sizes) + len(self.suspects)

    @property
    def shorter_side(self) -> int:
        """Median length of the shorter side, pixels."""
        return round(statistics.median(min(size) for size in self.sizes))


def take_survey(
    listing: Listing, config: IngestConfig, *, most: int = 64, seconds: float = 2.0
) -> Survey:
    """Look at up to `most` files, evenly spread over the folder, for about `seconds`.

    Raises:
        UserError: none of them is an image.
    """
    formats: collections.Counter[str] = collections.Counter()
    sizes: list[tuple[int, int]] = []
    suspects: list[Suspect] = []
    size = stored = 0
    started = time.monotonic()
    for file, content in read_files(listing.root, _spread(listing.files, most), config):
        if time.monotonic() - started > seconds and sizes:
            break
        try:
            probe = probe_image(usable(content), config)
        except Rejected as rejected:
            suspects.append(Suspect(file.path, rejected.category.value, str(rejected)))
            continue
        formats[probe.format] += 1
        sizes.append((probe.width, probe.height))
        size, stored = size + file.size, stored + probe.stored
    if not sizes:
        raise UserError(
            f"None of the {len(suspects)} files looked at in {listing.root} is an image that can "
            f"be read, such as {suspects[0].path} ({suspects[0].category}): check that it is the "
            f"right folder."
        )
    elapsed = time.monotonic() - started
    rate = (len(sizes) + len(suspects)) / elapsed
    share = stored / size
    return Survey(dict(formats.most_common()), tuple(sizes), tuple(suspects), share, rate)


def _spread(files: tuple[ImageFile, ...], most: int) -> list[ImageFile]:
    """Choose up to `most` files at equal distances, mixed, so that any first few are a sample."""
    count = min(most, len(files))
    chosen = [files[len(files) * i // count] for i in range(count)]
    step = max(1, round(count**0.5))
    return [file for start in range(step) for file in chosen[start::step]]
