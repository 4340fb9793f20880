"""The lineage of a pushed model as a tree: an artifact, the step that made it, its inputs below."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text
from rich.tree import Tree

from components.contract.printable import make_printable
from pipeline_def.local.lineage import Item, Lineage, Step
from pipeline_def.local.run_text import format_value, local_time, shorten_fingerprint

_LONGEST = 200


def draw(lineage: Lineage) -> Iterator[Tree]:
    """Draw what led to the push, and then each step that nothing of it used."""
    drawing = _Drawing(lineage)
    yield drawing.draw("pushed_model", lineage.pushed)
    for step in lineage.steps:
        if step.id not in drawing.shown:
            name, ids = next(iter(step.outputs.items()))
            yield drawing.draw(name, ids[0])


class _Drawing:
    """Describes a step once, where it is nearest to the root."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self.shown: set[int] = set()

    def draw(self, name: str, item: int) -> Tree:
        root = Tree("")
        waiting = collections.deque([(root, name, item)])
        while waiting:
            branch, name, item = waiting.popleft()
            step = self._lineage.maker(item)
            again = step is not None and step.id in self.shown
            leaf = branch.add(self._describe(name, item, step, again=again))
            if step and not again:
                self.shown.add(step.id)
                inputs = [(leaf, key, one) for key, ids in step.inputs.items() for one in ids]
                waiting.extend(inputs)
        return root.children[0]

    def _describe(self, name: str, item: int, step: Step | None, *, again: bool) -> Text:
        """Say what an artifact is and, the first time, how it was made."""
        found = self._lineage.items[item]
        text = Text(f"{make_printable(name)}: {found.type} #{item}", style="bold")
        lines = [found.uri, *_list_facts(found)]
        if step is None:
            lines.append("made by no step that is known")
        elif again:
            lines.append(f"by {step.node} #{step.id}, see there")
        else:
            lines += [*_describe_step(step), *self._list_siblings(step, item)]
        text.append("".join(f"\n{make_printable(line)}" for line in lines), style="not bold")
        return text

    def _list_siblings(self, step: Step, item: int) -> Iterator[str]:
        """Say what the step has found out beside the artifact."""
        for name, ids in step.outputs.items():
            for one in ids:
                facts = ", ".join(_list_facts(self._lineage.items[one]))
                if one != item and facts:
                    yield f"with {name} #{one}: {facts}"


def _list_facts(item: Item) -> list[str]:
    examples = [f"{count:,} {split}" for split, count in item.examples.items()]
    # What is JSON was written for programs.
    facts = {n: v for n, v in item.facts.items() if not str(v).startswith(("{", "[")) and v != ""}
    said = [f"{name} {_format_fact(name, value)}" for name, value in facts.items()]
    return [text for text in (", ".join(examples), ", ".join(said)) if text]


def _format_fact(name: str, value: float | str) -> str:
    if name == "input_fingerprint":
        return shorten_fingerprint(str(value))
    return f"{value:.4g}" if isinstance(value, float) else make_printable(str(value))


def _describe_step(step: Step) -> Iterator[str]:
    took = "" if step.seconds is None else f", {step.seconds:.1f} s"
    yield f"by {step.node} #{step.id}, {local_time(step.started)}{took}, run {step.run}"
    yield from _list_settings(step)


def _list_settings(step: Step) -> Iterator[str]:
    """Write a section a line; leave out what is no field of the configuration."""
    sections: dict[str, list[str]] = {}
    for name, value in _own(step).items():
        section, _, field = name.partition(".")
        sections.setdefault(section, []).append(
            f"{field} {format_value(value, longest=_LONGEST)}".strip()
        )
    for section, fields in sections.items():
        yield f"{section}: {', '.join(fields)}"


def _own(step: Step) -> Mapping[str, Any]:
    return {name: v for name, v in step.settings.items() if not name.startswith(f"{step.node}.")}
