"""Take over the shards that an earlier run of the same Transform has made of the same files."""

import os
from collections.abc import Iterator, Sequence

from components.contract.artifact_files import link, make_folders
from components.records.record_index import index_path
from components.records.shard_files import find_earlier, is_untouched, read_index


def take_over(
    places: Sequence[tuple[str, str]], examples_uri: str, transformed_uri: str, made_by: str
) -> list[tuple[str, str]]:
    """Share shards of the newest output that was made alike; return the places of the others.

    A place is a split and a shard's name. Ingest shares its unchanged shards with its earlier
    output: they are the same file on disk.
    """
    earlier = find_earlier(transformed_uri, "made_by", made_by)
    known = dict(_list_intact(earlier)) if earlier else {}
    identities = {place: _identify(_shard(examples_uri, *place)) for place in places}
    unchanged = {place: known[file] for place, file in identities.items() if file in known}
    for place, before in unchanged.items():
        for path in (_shard, index_path):
            new = path(transformed_uri, *place)
            make_folders(os.path.dirname(new))
            link(path(earlier, *before), new)
    return [place for place in places if place not in unchanged]


def _list_intact(uri: str) -> Iterator[tuple[tuple[int, ...], tuple[str, str]]]:
    """Yield the file that each shard was made of, unless anything was written since the index."""
    index = read_index(uri)
    source = os.path.join(uri, index["made_from"])
    for split, names in index["splits"].items():
        for name in names:
            made_of = _shard(source, split, name)
            if is_untouched(uri, (made_of, _shard(uri, split, name), index_path(uri, split, name))):
                yield _identify(made_of), (split, name)


def _identify(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _shard(uri: str, split: str, name: str) -> str:
    return os.path.join(uri, f"Split-{split}", name)
