"""Inspect a sample of the images of a folder, without TensorFlow or Beam."""

import collections
import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from PIL.Image import Image

from components.contract.errors import DataError
from components.images.check import usable
from components.images.check_result import Category, Rejected
from components.images.formats import open_image
from components.ingest.config import IngestConfig
from components.ingest.datasets.reading import read_images
from components.ingest.plan.splits import check_classes
from components.ingest.source.listing import ImageFile, Listing
from components.storage.fetch import Content

SAMPLE = 256
"""Number of files in the sample, whose headers take less than a second to read."""

_HEADER_BYTES = 64 * 2**10
_SAMPLE_SHARDS = 16
# What a whole file may get if only its start is read.
_OF_A_START = (Category.NOT_AN_IMAGE, Category.TRUNCATED)


@dataclass(frozen=True)
class SuspectFile:
    """A file of the sample that ingest would probably reject."""

    path: str
    category: str
    reason: str


@dataclass(frozen=True)
class Survey:
    """What the headers of the sample show; depends on the files alone."""

    formats: Mapping[str, int]
    """Pillow's name of the format → number of images."""
    sizes: tuple[tuple[int, int], ...]
    """Width and height in pixels of each readable image."""
    suspects: tuple[SuspectFile, ...]

    @property
    def sampled(self) -> int:
        """Number of sampled files."""
        return len(self.sizes) + len(self.suspects)

    @property
    def shorter_side(self) -> int:
        """Median of the shorter sides, pixels."""
        return round(statistics.median(min(size) for size in self.sizes))

    @property
    def shown(self) -> float:
        """Fraction of the median image that the largest square shows."""
        return statistics.median(min(size) / max(size) for size in self.sizes)


def take_survey(listing: Listing, config: IngestConfig) -> Survey:
    """Read the headers of up to `SAMPLE` files, spread evenly over the folder.

    Raises:
        DataError: none of them is an image, or none of a class.
    """
    formats: collections.Counter[str] = collections.Counter()
    sizes: list[tuple[int, int]] = []
    suspects: list[SuspectFile] = []
    sample = _sample(listing)
    for file, content in read_images(listing.root, sample, config, first=_HEADER_BYTES):
        try:
            image = _open(listing, file, content, config)
        except Rejected as rejected:
            suspects.append(SuspectFile(file.path, rejected.category.value, str(rejected)))
        else:
            formats[str(image.format)] += 1
            sizes.append(image.size)
    if not sizes:
        raise DataError(
            f"None of {len(suspects)} sampled files in {listing.root} is a readable image, such as "
            f"{suspects[0].path} ({suspects[0].category}): {suspects[0].reason}. Check that it is "
            f"the right folder."
        )
    # A person may have removed the files of a class.
    if not listing.corrections.path:
        check_classes({suspect.path: suspect.category for suspect in suspects}, listing)
    return Survey(dict(formats.most_common()), tuple(sizes), tuple(suspects))


def _open(listing: Listing, file: ImageFile, content: Content, config: IngestConfig) -> Image:
    try:
        return open_image(usable(content), config)
    except Rejected as rejected:
        if rejected.category not in _OF_A_START or file.size <= _HEADER_BYTES:
            raise
    # Its header is longer, or at the end of the file, as TIFF allows.
    [(_, whole)] = read_images(listing.root, [file], config)
    return open_image(usable(whole), config)


def _sample(listing: Listing) -> list[ImageFile]:
    """Choose up to `SAMPLE` files at equal distances, in an order whose start is a sample, too.

    Of records, choose the first of some shards, since a gzipped shard is read from its start.
    """
    files = listing.files
    if files and files[0].shard:
        shards = [[*group] for _, group in itertools.groupby(files, key=lambda file: file.shard)]
        some = shards[:: -(-len(shards) // _SAMPLE_SHARDS)]
        return [file for shard in some for file in shard[: SAMPLE // len(some)]]
    count = min(SAMPLE, len(files))
    chosen = [files[len(files) * i // count] for i in range(count)]
    step = max(1, round(count**0.5))
    return [file for start in range(step) for file in chosen[start::step]]
