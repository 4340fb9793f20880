"""Names of the numbers that shards hold as labels: each shard has its own, or the folder's.

Labels of different shards meet by name, never by number.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from components.contract.errors import DataError
from components.contract.printable import quote
from components.ingest.source.values import read_label
from components.storage.folder import read_bytes

_FILES = ("labels.txt", "classnames.txt")
_NUMBERED = re.compile(r"(\d+)\s*[:,\s]\s*(.+)")
_NUMBER = re.compile(r"-?\d+")


class ClassNames(NamedTuple):
    """Names of the numbers that are labels."""

    source: str
    """The file or shard that has them."""
    by_number: Mapping[str, str]
    problem: str = ""
    """Why they cannot be used, if so; it matters only where labels are numbers."""

    @classmethod
    def of(cls, numbered: Iterable[tuple[int, str]], source: str) -> "ClassNames":
        """Collect numbers and names; the problem is a name that is missing, or for two numbers."""
        by_number: dict[str, str] = {}
        numbers: dict[str, int] = {}
        problem = ""
        for number, name in numbered:
            by_number[str(number)] = name
            other = numbers.setdefault(name, number)
            if not name:
                problem = problem or f"{source} has no name for the label {number}: add it."
            elif other != number:
                problem = problem or (
                    f"{source} gives the labels {other} and {number} the same name, "
                    f"{quote(name)}: make them different."
                )
        return cls(source, by_number, problem)

    def beside(self, other: "ClassNames") -> "ClassNames":
        """Return these names; the problem is that others for the same labels differ."""
        if not other or self.by_number == other.by_number:
            return self
        problem = f"{self.source} and {other.source} name different classes: correct or remove one."
        return self._replace(problem=problem)

    def __bool__(self) -> bool:
        return bool(self.by_number)


NO_NAMES = ClassNames("", {})


def find_names(folder: str, feature: str, paths: Iterable[str]) -> ClassNames:
    """Return the names in the files of a folder, which must be the same in all of them.

    `feature` is the label, and `paths` are those of all files.

    Raises:
        DataError: a file is not text.
    """
    wanted = (f"{feature}.labels.txt", *_FILES)
    files = [
        ClassNames.of(_parse(read_bytes(f"{folder.rstrip('/')}/{path}"), path), path)
        for path in sorted(path for path in paths if posixpath.basename(path) in wanted)
    ]
    if not files:
        return NO_NAMES
    others = (names for names in files if names.by_number != files[0].by_number)
    return next(others, files[0]).beside(files[0])


def _parse(data: bytes, path: str) -> list[tuple[int, str]]:
    """Return number and name on each line: from 0, or as in TF-slim's `0:daisy`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeError as error:
        raise DataError(f"{path} is not UTF-8 text: save it as UTF-8.") from error
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", text.rstrip())]
    matches = [match for line in lines if (match := _NUMBERED.fullmatch(line))]
    numbers, names = [int(match[1]) for match in matches], {match[2] for match in matches}
    first = numbers[0] if numbers else 0
    is_numbered = len(names) == len(lines) and numbers == [*range(first, first + len(lines))]
    if is_numbered and first in (0, 1):
        return [(int(match[1]), match[2]) for match in matches]
    return [*enumerate(lines)]


class ShardLabels:
    """The labels of one shard."""

    def __init__(self, path: str, names: ClassNames) -> None:
        """Read the labels of the shard `path` by `names`."""
        self.path, self.names = path, names
        self.are_integers: dict[str, bool] = {}
        """Label → whether it is stored as a number."""
        self._pairs: dict[str, tuple[str, str]] = {}

    def read(self, value: Any, number: Any = None) -> str | None:
        """Return a label as text; None for an unlabeled image.

        `number` is that of the label, if the record has both.

        Raises:
            RefusedValueError: the value is no label.
            DataError: its number is that of another label, or the names cannot be used.
        """
        label = read_label(value, self.names.by_number)
        if self.names.problem and label in self.names.by_number.values():
            raise DataError(self.names.problem)
        if label and isinstance(number, int):
            pair = f"number {number}", f"label {quote(label)}"
            for key in pair:
                other = self._pairs.setdefault(key, pair)
                if other != pair:
                    raise DataError(
                        f"{self.path} has the {' with the '.join(other)}, but also the "
                        f"{' with the '.join(pair)}: name the feature that is right with "
                        f"ingest.features, as in {{label: NAME}}."
                    )
        if label and label not in self.are_integers:
            single = value[0] if isinstance(value, list) else value
            self.are_integers[label] = not isinstance(single, str | bytes)
        return label

    def numbers(self) -> set[int]:
        """Return the labels that are numbers, also those with names."""
        known = {name: number for number, name in self.names.by_number.items()}
        texts = (known.get(label, label) for label in self.are_integers)
        return {int(text) for text in texts if _NUMBER.fullmatch(text)}


def check_names(shards: Sequence[ShardLabels]) -> list[str]:
    """Return notes on names whose numbers may be shifted by one.

    Raises:
        DataError: labels are numbers without names, though others have names.
    """
    used: dict[str, set[int]] = {}
    for shard in shards:
        used.setdefault(shard.names.source, set()).update(shard.numbers())
    for shard in shards:
        known = {int(number): name for number, name in shard.names.by_number.items()}
        if outside := shard.numbers() - known.keys() if known else ():
            is_list = shard.names.source != shard.path
            shift = (
                f"write the lines as 1:{known[min(known)]}" if is_list else "subtract 1 from each"
            )
            raise DataError(
                f"{shard.path} has the label {min(outside)}, but {shard.names.source} names only "
                f"the numbers {min(known)} to {max(known)}: add its name, or, if the labels start "
                f"at 1, {shift}; mark unlabeled images by -1."
            )
    has_names = any(shard.names for shard in shards)
    labels = [(shard, label) for shard in shards for label in shard.are_integers]
    names = ((shard, label) for shard, label in labels if not _NUMBER.fullmatch(label))
    numbers = (
        (shard, label)
        for shard, label in labels
        if _NUMBER.fullmatch(label) and not shard.names and (has_names or shard.are_integers[label])
    )
    named, numbered = next(names, None), next(numbers, None)
    if named and numbered and named[0] != numbered[0]:
        path = numbered[0].path
        raise DataError(
            f"The labels of {path} are numbers, such as {numbered[1]}, but those of "
            f"{named[0].path} are names, such as {quote(named[1])}: name the numbers in one file "
            f"labels.txt, for all shards, or leave {path} out with ingest.exclude."
        )
    return [
        f"No record has the label 0 of {source}, {quote(first)}: if the labels start at 1, all "
        f"names are wrong; then write its lines as 1:{first}."
        for source, first in {
            shard.names.source: shard.names.by_number.get("0") for shard in shards
        }.items()
        if first and 0 not in used[source] and len(used[source]) > 1
    ]
