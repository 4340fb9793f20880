"""Finds code and commands in Markdown files.

A comment says what a command needs: `<!-- needs a cluster -->` on its own line is for the next
block or paragraph, within a line for that line; `<!-- needs the internet: pip, uv sync -->` is for
commands with one of these words. `<!-- tested by tests/test_wheel.py -->` names a test instead.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md"),
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
)

INLINE = "inline"
SHELL = frozenset({"sh", "bash", "console"})

_FENCE = re.compile(r"\s*```(\w*)\s*$")
_MARK = re.compile(r"<!-- (needs|tested by) ([^:>]+?)(?:: ([^>]+?))? -->")
_INLINE_CODE = re.compile(r"`([^`]+)`")
# An inline command begins with one of these, and has an argument.
_PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:uvx?|pipx?|docker|kubectl|python3?|less|cat|zcat|jq|curl|export|git|\./\S+) "
)
# The first line of a file of YAML says what it is for.
_FOR = re.compile(r"# (?P<name>\S+), for: (?P<command>.+)")


@dataclass(frozen=True)
class Mark:
    kind: str  # "needs" or "tested by"
    what: str
    words: tuple[str, ...] = ()  # commands it is for contain one of them; empty: all commands

    def is_for(self, command: str) -> bool:
        return not self.words or any(word in command for word in self.words)


@dataclass(frozen=True)
class Code:
    """A block of code, or inline code."""

    text: str
    language: str  # of a block, "" if unnamed; or INLINE
    page: str
    line: int
    marks: tuple[Mark, ...] = ()

    @property
    def name(self) -> str:
        """File name that a block of YAML gives itself, or ""."""
        match = _FOR.match(self.text)
        return match["name"] if match else ""


@dataclass(frozen=True)
class Command:
    """A simple command, without `&&` and comments."""

    text: str
    where: str  # page and line
    needs: str = ""
    tested_by: str = ""


def read_page(page: str) -> list[Code]:
    return list(_read((ROOT / page).read_text(encoding="utf-8").splitlines(), page))


def _read(lines: list[str], page: str) -> Iterator[Code]:
    marks: tuple[Mark, ...] = ()
    number = 0
    while number < len(lines):
        start = number
        if not lines[start].strip():
            number += 1
        elif fence := _FENCE.match(lines[start]):
            number = _find_line(_FENCE, lines, start + 1)
            block = "\n".join(lines[start + 1 : number])
            yield Code(block, fence[1], page, start + 1, marks)
            marks, number = (), number + 1
        elif _MARK.fullmatch(lines[start].strip()):
            marks += _read_marks(lines[start])
            number += 1
        else:
            number = _find_line(re.compile(r"\s*$|\s*```"), lines, start + 1)
            yield from _read_inline(lines[start:number], page, start + 1, marks)
            marks = ()


def _find_line(pattern: re.Pattern[str], lines: list[str], first: int) -> int:
    return next((n for n in range(first, len(lines)) if pattern.match(lines[n])), len(lines))


def _read_marks(line: str) -> tuple[Mark, ...]:
    return tuple(
        Mark(match[1], match[2], tuple(match[3].split(", ")) if match[3] else ())
        for match in _MARK.finditer(line)
    )


def _read_inline(
    lines: list[str], page: str, first: int, marks: tuple[Mark, ...]
) -> Iterator[Code]:
    text = "\n".join(lines)
    for match in _INLINE_CODE.finditer(text):
        line = text.count("\n", 0, match.start())
        code = " ".join(match[1].split())
        yield Code(code, INLINE, page, first + line, marks + _read_marks(lines[line]))


def find_commands(code: Code) -> Iterator[Command]:
    """Yield the commands of a shell block, of inline code, or of a YAML block's first line."""
    for number, line in _command_lines(code):
        for part in re.split(r"\s+&&\s+|\s+&\s*$|;\s+", line):
            if part.strip():
                where = f"{code.page}:{code.line + number}"
                marks = (_find(kind, code.marks, part) for kind in ("needs", "tested by"))
                yield Command(part.strip(), where, *marks)


def _command_lines(code: Code) -> Iterator[tuple[int, str]]:
    if code.language == INLINE:
        if _PROGRAMS.match(code.text):
            yield 0, code.text
    elif code.language in SHELL:
        number = 1
        for line in code.text.replace("\\\n", "\0").split("\n"):
            plain = re.sub(r"(^|\s+)#.*", "", line)
            yield number, re.sub(r"\0\s*", "", plain).removeprefix("$ ")
            number += 1 + line.count("\0")
    elif match := _FOR.match(code.text):
        yield 1, match["command"]


def _find(kind: str, marks: tuple[Mark, ...], command: str) -> str:
    return ", ".join(mark.what for mark in marks if mark.kind == kind and mark.is_for(command))
