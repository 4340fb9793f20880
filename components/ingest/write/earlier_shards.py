"""Find shards of earlier ingests whose files have not changed, and the splits of all images."""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from components.contract.artifact_files import list_names, make_folders, on_disk, remove
from components.contract.configuration import to_dict
from components.contract.errors import StorageError
from components.ingest.config import IngestConfig
from components.ingest.plan.facts import (
    FACTS,
    PICTURES,
    PlanFacts,
    plan_path,
    read_facts,
    write_facts,
)
from components.ingest.plan.shard_plan import ShardPlan, is_unchanged
from components.ingest.plan.splits import key_of
from components.ingest.source.listing import ImageFile
from components.records.shard_files import PLANS, find_earlier, is_untouched
from components.storage.folder import share

# Copies within a bucket are mostly waiting.
_REQUESTS = 32
# Options that decide neither what is stored of an image nor which images share a shard.
_OTHERS = {
    *("manifest", "corrections", "layout", "exclude", "span", "splits"),
    *("near_duplicates", "fingerprint", "max_reject_fraction", "threads"),
}


def reuse_key(config: IngestConfig, code: str) -> str:
    """Return a digest of what decides how a file is stored: options, and the code of ingest."""
    used = {name: value for name, value in to_dict(config).items() if name not in _OTHERS}
    text = f"{code} {sorted(used.items())} {config.finds_near_duplicates}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Earlier(NamedTuple):
    """What earlier ingests of the same step have left for this one."""

    uri: str = ""
    """The one whose shards may be used again."""
    facts: Sequence[PlanFacts] = ()
    """Its plans whose files are complete."""
    splits: Mapping[str, str] = {}
    """Key of an image or group (see `key_of`) that a hash divided → its split."""


class TakenOver(NamedTuple):
    """What this ingest has taken over."""

    facts: Mapping[int, PlanFacts] = {}
    """Number of a plan whose shards have been taken over → what is known of its files."""
    sources: Mapping[int, Sequence[str]] = {}
    """Number of another plan → the earlier plans that know files of it, see `plan_path`."""
    known: int = 0
    """Number of files that need not be read."""


def read_earlier(examples_uri: str, config: IngestConfig, *, key: str, division: str) -> Earlier:
    """Find the newest shards that may be used again, and the splits of their images.

    The index of the shards has `key` as `made_by`, that of the splits `division` as `divided_by`.
    """
    uri = find_earlier(examples_uri, "made_by", key)
    divided = find_earlier(examples_uri, "divided_by", division)
    suffixes = [PICTURES] if config.finds_near_duplicates else []
    read = {folder: [*_read_plans(folder, suffixes)] for folder in {uri, divided} - {""}}
    facts = [plan for plan, is_intact in read.get(uri, ()) if is_intact]
    splits = _find_splits([plan for plan, _ in read.get(divided, ())])
    return Earlier(uri, facts, splits)


def _find_splits(plans: Sequence[PlanFacts]) -> dict[str, str]:
    """Return key of an image or group that a hash divided → its split."""
    splits: dict[str, str] = {}
    groups: dict[str, set[str]] = {}
    grouped: list[tuple[str, str, str]] = []
    for file, fact in itertools.chain.from_iterable(plan.files() for plan in plans):
        if fact.split and file.split is None:
            splits[fact.sha256] = fact.split
            if file.group is not None:
                key = key_of(file, fact.sha256)
                grouped.append((key, fact.sha256, fact.split))
                groups.setdefault(fact.sha256, set()).add(key)
    for file, fact in itertools.chain.from_iterable(plan.files() for plan in plans if grouped):
        if file.group is None and fact.sha256 in groups:
            groups[fact.sha256].add(fact.sha256)
    # Copies of an image that is elsewhere, too, may have left their groups.
    grouped.sort(key=lambda image: len(groups[image[1]]) > 1)
    for key, _, split in grouped:
        splits.setdefault(key, split)
    return splits


def take_over(
    plans: Sequence[ShardPlan], earlier: Earlier, examples_uri: str, config: IngestConfig
) -> TakenOver:
    """Take over the shards of plans whose files have not changed since the earlier ingest."""
    suffixes = [PICTURES] if config.finds_near_duplicates else []
    known = {id(facts.plan): facts for facts in earlier.facts}
    before = {n: known[id(plan.before)] for n, plan in enumerate(plans) if plan.before}
    # What could not be read may be readable now.
    whole = {n: facts for n, facts in before.items() if all(fact.sha256 for fact in facts.facts)}
    with ThreadPoolExecutor(_REQUESTS) as pool:
        jobs = {
            number: pool.submit(_adopt, plans[number], facts, earlier.uri, examples_uri, suffixes)
            for number, facts in whole.items()
        }
    taken = {number: facts for number, job in jobs.items() if (facts := job.result())}
    sources, count = _find_sources(plans, earlier, whole)
    return TakenOver(taken, sources, count + sum(len(plans[number].files) for number in taken))


def _find_sources(
    plans: Sequence[ShardPlan], earlier: Earlier, whole: Mapping[int, PlanFacts]
) -> tuple[dict[int, list[str]], int]:
    """Return the sources of the other plans, and how many of their files these know."""
    taken = {id(facts) for facts in whole.values()}
    owners: dict[str, tuple[ImageFile, str]] = {}
    for facts in earlier.facts:
        if id(facts) not in taken:
            place = plan_path(earlier.uri, facts.plan)
            owners |= {file.path: (file, place) for file, fact in facts.files() if fact.sha256}
    sources: dict[int, list[str]] = {}
    count = 0
    for number, plan in enumerate(plans):
        if number not in whole:
            owned = [(file, *owners[file.path]) for file in plan.files if file.path in owners]
            places = [place for file, before, place in owned if is_unchanged(file, before)]
            count += len(places)
            if places:
                sources[number] = list(dict.fromkeys(places))
    return sources, count


def _adopt(
    plan: ShardPlan, facts: PlanFacts, earlier_uri: str, examples_uri: str, suffixes: Sequence[str]
) -> PlanFacts | None:
    """Take over the shards of a plan; return None if the earlier ones are being removed."""
    source, target = plan_path(earlier_uri, facts.plan), plan_path(examples_uri, plan)
    # Most files are listed as before, with their labels.
    is_as_before = plan.files == facts.plan.files
    shared = [*suffixes, FACTS] if is_as_before else suffixes
    pairs = [(source + suffix, target + suffix) for suffix in shared]
    shards = plan.shards(examples_uri, facts.sizes)
    old_shards = facts.plan.shards(earlier_uri, facts.sizes)
    pairs += [(old_shards[split], shards[split]) for split in shards]
    for number, (old, new) in enumerate(pairs):
        make_folders(os.path.dirname(new))
        try:
            share(old, new)
        except FileNotFoundError:
            for _, path in pairs[:number]:
                remove(path)
            return None
    now = dataclasses.replace(facts, plan=plan)
    if not is_as_before:
        write_facts(examples_uri, now)
    return now


def _read_plans(examples_uri: str, suffixes: Sequence[str]) -> Iterator[tuple[PlanFacts, bool]]:
    """Yield the facts of each plan, and whether its files may be used again."""
    folder = os.path.join(examples_uri, PLANS)
    for name in list_names(folder):
        if name.endswith(FACTS):
            path = os.path.join(folder, name.removesuffix(FACTS))
            with contextlib.suppress(OSError, StorageError):
                facts = read_facts(path)
                yield facts, not on_disk(path) or _is_intact(facts, path, examples_uri, suffixes)


def _is_intact(facts: PlanFacts, path: str, examples_uri: str, suffixes: Sequence[str]) -> bool:
    """Return whether shards have their sizes, and nothing has been written since the index."""
    shards = facts.plan.shards(examples_uri, facts.sizes)
    files = (*shards.values(), *(path + suffix for suffix in (FACTS, *suffixes)))
    if not is_untouched(examples_uri, files):
        return False
    return facts.sizes == {split: os.path.getsize(shard) for split, shard in shards.items()}
