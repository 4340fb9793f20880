"""Bind images and groups that must fall into the same split."""

import logging
from collections.abc import Collection, Iterable, Mapping


def rank(key: str) -> str:
    """Return a sort key that has nothing to do with the split, which the first digits decide."""
    return key[::-1]


def bind_keys(
    clusters: Iterable[Collection[str]],
    sizes: Mapping[str, int],
    *,
    most: int,
    spans: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Return the key of each image or group in `clusters` → the key that decides for it.

    Clusters that share a group become one, unless that adds more than `most` images to the largest
    group; then each group is left where it is.

    Args:
        clusters: the keys of each cluster.
        sizes: key → images.
        most: number of images.
        spans: key → its earliest span; a key of the earliest span decides.
    """
    since = spans or {}
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while parents.setdefault(key, key) != key:
            key = parents[key]
        return key

    for cluster in clusters:
        roots = {root(key) for key in cluster}
        for key in roots:
            parents[key] = min(roots, key=lambda of: (since.get(of, 0), rank(of)))
    members: dict[str, list[str]] = {}
    for key in parents:
        members.setdefault(root(key), []).append(key)
    for decisive, keys in list(members.items()):
        counts = [sizes[key] for key in keys]
        if sum(counts) - max(counts) > most:
            logging.warning(
                "Near duplicates connect %s images of several groups, too many for one split: each "
                "group is left where it is.",
                f"{sum(counts):,}",
            )
            del members[decisive]
    return {key: decisive for decisive, keys in members.items() for key in keys}
