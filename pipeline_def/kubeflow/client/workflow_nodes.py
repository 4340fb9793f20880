"""Finds out which node of an Argo workflow is which: the API tells no names, only their hashes.

A node is listed under the last part of its name, and others refer to it by its identifier, which is
made of the whole name. Since 2.17 every node is there twice, as `X` and, for its first attempt, as
`X(0)`. Source: `NodeID` and `initializeNode` of Argo Workflows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

_ATTEMPT = re.compile(r"\(\d+\)$")


def without_attempt(name: str) -> str:
    """Return the name of a node without the number of its attempt, `(0)`."""
    return _ATTEMPT.sub("", name)


def node_id(workflow: str, name: str) -> str:
    """Return the identifier of the node `name`.

    Example:
        >>> node_id("images-g9nxq", "images-g9nxq(0).root")
        'images-g9nxq-3265824692'
    """
    if name == workflow:
        return name
    # FNV-1a, 32 bits.
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{workflow}-{value}"


@dataclass(frozen=True)
class Node:
    """A node of the workflow."""

    id: str
    name: str
    """Its whole name, such as `images-g9nxq(0).root(0).Trainer`."""
    attempts: list[str] = field(default_factory=list)
    """Identifiers of its attempts; empty where nodes are not repeated."""
    children: list[Node] = field(default_factory=list)
    """Nodes within it, of all attempts."""

    @property
    def title(self) -> str:
        """The last part of its name, by which it is listed."""
        return self.name.rpartition(".")[2]

    @property
    def last_attempt(self) -> str:
        """Identifier of the node that has a pod, where it has one."""
        return self.attempts[-1] if self.attempts else self.id


def find_nodes(workflow: str, titles: Collection[str], ids: Collection[str]) -> Node:
    """Return the root of the tree of all nodes whose names can be found.

    Args:
        workflow: its name.
        titles: what the nodes are listed as.
        ids: identifiers of nodes that others refer to.
    """
    plain = sorted({without_attempt(title) for title in titles})
    return _grow(workflow, workflow, plain, ids)


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything within it."""
    yield node
    for child in node.children:
        yield from walk(child)


def _grow(workflow: str, name: str, titles: Collection[str], ids: Collection[str]) -> Node:
    attempts: list[str] = []
    while node_id(workflow, again := f"{name}({len(attempts)})") in ids:
        attempts.append(again)
    children = [
        _grow(workflow, inner, titles, ids)
        for outer in attempts or [name]
        for title in titles
        if node_id(workflow, inner := f"{outer}.{title}") in ids
    ]
    identifiers = [node_id(workflow, again) for again in attempts]
    return Node(node_id(workflow, name), name, identifiers, children)
