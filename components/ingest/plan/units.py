"""Join images and groups that must be in one split: copies of an image, and near duplicates."""

import collections
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from components.contract.example import SPAN
from components.ingest.plan.assignment import Images
from components.ingest.plan.near_duplicates import DuplicateCluster, Files, connect, rank
from components.ingest.plan.splits import key_of
from components.ingest.source.listing import ImageFile

# Larger clusters, such as the frames of a fixed camera, would make a split of their own; of a few
# images, so would a quarter.
_MOST, _MOST_FRACTION, _MOST_OF_FEW = 100, 0.01, 0.25
# A class of which more is in one cluster would have too few other images to be learned from.
_MOST_OF_CLASS = 0.75


class _Units:
    """Images that must stay together, by their keys (see `key_of`)."""

    def __init__(self, images: Images, sets: Sequence[Sequence[str]], alone: Set[str]) -> None:
        """Join sets of keys, which may overlap; digests in `alone` are keys of their own."""
        wanted = set(itertools.chain.from_iterable(sets))
        self.labels: dict[str, collections.Counter[str]] = {}
        self.spans: dict[str, int] = {}
        """Key → first span."""
        self.classes = collections.Counter[str]()
        for file, sha256 in images if wanted else ():
            if file.split is None:
                self.classes[file.label] += 1
                if (key := _key_of(file, sha256, alone)) in wanted:
                    self.labels.setdefault(key, collections.Counter())[file.label] += 1
                    span = int(file.columns.get(SPAN, 0))
                    self.spans[key] = min(span, self.spans.get(key, span))
        self.joined = self._join(sets)

    def _join(self, sets: Iterable[Sequence[str]]) -> list[list[str]]:
        # An image may have been dropped meanwhile.
        known = [[key for key in keys if key in self.labels] for keys in sets]
        names = list(dict.fromkeys(itertools.chain.from_iterable(known)))
        numbers = {key: number for number, key in enumerate(names)}
        pairs = [(numbers[a], numbers[b]) for keys in known for a, b in itertools.pairwise(keys)]
        roots = connect(len(names), np.array(pairs, np.int64).reshape(-1, 2)).tolist()
        joined: dict[int, list[str]] = {}
        for key, root in zip(names, roots, strict=True):
            joined.setdefault(root, []).append(key)
        return [keys for keys in joined.values() if len(keys) > 1]

    def count(self, keys: Iterable[str]) -> collections.Counter[str]:
        """Count the images of each class."""
        return sum((self.labels[key] for key in keys), collections.Counter())

    def is_too_large(self, keys: Sequence[str]) -> bool:
        """Return whether too many images would join the largest group of `keys`."""
        counts, images = [self.labels[key].total() for key in keys], self.classes.total()
        most = max(min(_MOST, int(_MOST_OF_FEW * images)), int(_MOST_FRACTION * images))
        return sum(counts) - max(counts) > most

    def fill_classes(
        self, keys: Sequence[str], counts: Mapping[str, int] | None = None
    ) -> list[str]:
        """Return the classes that have hardly any other images, unless one key has most of them.

        No model could know such a class without having seen one of these images. `counts` is class
        → images, if not all of `keys` count.
        """
        return sorted(
            label
            for label, count in (counts or self.count(keys)).items()
            if count > max(1, _MOST_OF_CLASS * self.classes[label])
            and 2 * max(self.labels[key][label] for key in keys) <= count
        )

    def bind(self, keys: Sequence[str], earlier: Mapping[str, str]) -> dict[str, str]:
        """Return key → the one that decides.

        A key of an earlier ingest or span decides, so that new images never change the split.
        """
        order = {key: (key not in earlier, self.spans[key], rank(key)) for key in keys}
        return dict.fromkeys(keys, min(keys, key=order.__getitem__))


def _key_of(file: ImageFile, sha256: str, alone: Set[str]) -> str:
    """Return the key of an image; digests in `alone` have left their groups."""
    return sha256 if sha256 in alone else key_of(file, sha256)


def bind_copies(copies: Files, images: Images, earlier: Mapping[str, str]) -> dict[str, str]:
    """Return what keeps copies of an image in one split, though they are in several groups.

    The groups become one: the key of each → the key that decides. If they are too large for that,
    or were in several splits before, the copies leave them: the digest of the image → itself.
    """
    sets = {
        sha256: list({key_of(file, sha256): 0 for file in files if file.split is None})
        for sha256, files in copies.items()
    }
    sets = {sha256: keys for sha256, keys in sets.items() if len(keys) > 1}
    units = _Units(images, list(sets.values()), set())
    bound: dict[str, str] = {}
    for keys in units.joined:
        are_apart = len({earlier[key] for key in keys if key in earlier}) > 1
        if are_apart or units.is_too_large(keys) or units.fill_classes(keys):
            together = set(keys)
            shared = [sha256 for sha256, members in sets.items() if members[0] in together]
            logging.warning(
                "%s groups share %s images, but cannot be in one split: the copies of each image "
                "stay together, whatever their group.",
                *(f"{len(keys):,}", f"{len(shared):,}"),
            )
            bound |= dict(zip(shared, shared, strict=True))
        else:
            bound |= units.bind(keys, earlier)
    return bound


def bind(
    clusters: Sequence[DuplicateCluster],
    files: Files,
    images: Images,
    earlier: Mapping[str, str],
    copies: Mapping[str, str],
) -> tuple[dict[str, str], list[str]]:
    """Return the key of each image or group without a given split → the key that decides for it.

    Clusters that share a group become one. The classes that follow have almost no images but near
    duplicates: these are not kept together. `files` is what `find_files` returns, `copies` what
    `bind_copies` returns.
    """
    alone = {key for key, first in copies.items() if key == first}
    sets: list[Sequence[str]] = [*copies.items()]
    alike: dict[str, collections.Counter[str]] = {}
    for cluster in clusters:
        keys = []
        for sha256 in cluster.digests:
            for file in (file for file in files[sha256] if file.split is None):
                keys.append(key := _key_of(file, sha256, alone))
                alike.setdefault(key, collections.Counter())[file.label] += 1
        sets.append(keys)
    bound, divided = dict(copies), set[str]()
    units = _Units(images, sets, alone)
    for keys in units.joined:
        counts = sum((alike[key] for key in keys if key in alike), collections.Counter[str]())
        if classes := units.fill_classes(keys, counts):
            divided |= set(classes)
        elif units.is_too_large(keys):
            logging.warning(
                "%s images look almost the same, too many for one split: they are left where they "
                "are.",
                f"{units.count(keys).total():,}",
            )
        else:
            bound |= units.bind(keys, earlier)
    return bound, sorted(divided)
