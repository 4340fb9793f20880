"""Read listed images, from files or from the records of shards."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from components.images.options import FileOptions
from components.ingest.datasets.detection import FORMATS
from components.ingest.datasets.record import Origin, Shard, explain_damage
from components.ingest.source.listing import ImageFile
from components.storage.fetch import CHANGED, Content, Unread, read_files, refuse
from components.storage.folder_listing import Found, checksum_matches, find_file

_Images = Iterator[tuple[ImageFile, Content]]


def read_images(
    folder: str, files: Sequence[ImageFile], config: FileOptions, *, first: int | None = None
) -> _Images:
    """Yield each image with its bytes, or the reason why they cannot be used, in order.

    Consecutive records of a shard are read in one pass if their numbers ascend.

    Args:
        folder: the listed folder, a path or URL.
        files: images in it.
        config: limits of reading.
        first: read only this many bytes from the start of each file; records are read whole.
    """
    for shard, group in itertools.groupby(files, key=lambda file: file.shard):
        if shard is None:
            yield from read_files(folder, [*group], config, first=first)
        else:
            yield from _read_records(folder, shard, [*group], config)


def _read_records(
    folder: str, path: str, files: Sequence[ImageFile], config: FileOptions
) -> _Images:
    """Read records of one shard, in order."""
    origins = [Origin.decode(file.version) for file in files]
    origin = origins[0]
    refused = [
        Unread(of.problem) if of.problem else refuse(file, config)
        for file, of in zip(files, origins, strict=True)
    ]
    wanted = [
        of.place for of, why in zip(origins, refused, strict=True) if why is None
    ]
    changed = _find_change(folder, path, origin) if wanted else None
    found = Found(path, "", origin.shard_size, origin.shard_version, "")
    limit = round(config.max_image_mib * 2**20)
    images = FORMATS[origin.layout].read(Shard(folder, found, limit), origin.image, wanted)
    lost: Unread | None = changed
    with contextlib.closing(images):
        for file, why in zip(files, refused, strict=True):
            data: bytes | None = None
            if why is None and lost is None:
                try:
                    data = next(images)
                except StopIteration:
                    lost = CHANGED
                except Exception as error:
                    lost = Unread(f"its shard is damaged: {explain_damage(error)}")
            if why or lost:
                yield file, why or lost
            elif data is None or not checksum_matches(data, file.checksum):
                yield file, CHANGED
            else:
                yield file, data


def _find_change(folder: str, path: str, origin: Origin) -> Unread | None:
    """Return why a shard can no longer be read, if so."""
    try:
        found = find_file(f"{folder.rstrip('/')}/{path}")
    except Exception as error:
        return Unread(f"its shard cannot be read: {error}")
    # Backups by hard links, and volumes that are mounted anew, change only the other time.
    now, then = found.version.split()[0], origin.shard_version.split()[0]
    return None if (found.size, now) == (origin.shard_size, then) else CHANGED
