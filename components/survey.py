"""A quick look at the images of a folder, from the headers of a few of them."""

from __future__ import annotations

import statistics
import warnings

from PIL import Image

from components.errors import UserError
from components.listing import Listing, open_folder

_SAMPLE = 64


def usual_shorter_side(listing: Listing, folder: str) -> int:
    """Return the median length, in pixels, of the shorter side of up to 64 images.

    Raises:
        UserError: none of them is an image.
    """
    fs, root = open_folder(folder)
    step = max(1, len(listing.files) // _SAMPLE)
    sides = []
    for file in listing.files[::step][:_SAMPLE]:
        try:
            with warnings.catch_warnings(), fs.open(f"{root}/{file.path}", "rb") as stream:
                warnings.simplefilter("ignore")
                sides.append(min(Image.open(stream).size))
        except Exception:  # Ingest will list it with its reason; here it only does not count.
            continue
    if not sides:
        raise UserError(
            f"None of the first files looked at in {folder} is an image that can be read: check "
            f"that --data names the right folder."
        )
    return round(statistics.median(sides))
