"""Finds options, fields, files, tests and links in the docs that do not exist."""

import functools
import re
from collections.abc import Iterator

from pipeline_def.config.options import list_options, list_sections
from tests.docs.markdown import INLINE, ROOT, Code

# With a section; other options are in commands, which are parsed.
_OPTION = re.compile(r"(?<!\S)--[a-z]+\.[\w.-]*\w|^([a-z]+)\.[a-z][a-z_.]*[a-z](?=: |$)")
_FILE = re.compile(r"[\w./-]*\w\.(py|md|svg|j2|go|dot|lock)")
_NOT_OURS = frozenset((".git", ".venv", "output"))
_MADE = ("MODEL_CARD.md",)
_BLOCK = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)
_TEST = re.compile(r"test_\w+")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@functools.cache
def _files() -> frozenset[str]:
    folders = (path for path in ROOT.iterdir() if path.is_dir() and path.name not in _NOT_OURS)
    below = (path for folder in folders for path in folder.rglob("*"))
    return frozenset(str(path.relative_to(ROOT)) for path in (*ROOT.iterdir(), *below))


def find_unknown_names(code: Code) -> Iterator[str]:
    if code.language == INLINE:
        missing = (*_unknown_options(code.text), *_unknown_file(code.text))
        for name in missing:
            yield f"{code.page}:{code.line}: there is no {name}"


def _unknown_options(text: str) -> Iterator[str]:
    is_file = text.endswith((".py", ".json", ".npz", ".pbtxt"))
    for match in _OPTION.finditer("" if is_file else text):
        name = match[0].removeprefix("--")
        known = any(name == option or name.startswith(f"{option}.") for option in list_options())
        if not known and (not match[1] or match[1] in list_sections()):
            yield f"option {name}"


def _unknown_file(text: str) -> Iterator[str]:
    if _FILE.fullmatch(text) and not _is_file(text):
        yield f"file {text}"
    if _TEST.fullmatch(text) and f"def {text}(" not in _tests():
        yield f"test {text}"


@functools.cache
def _tests() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))


def _is_file(name: str) -> bool:
    """Return whether a file has this path, or one that ends with it."""
    return name in _MADE or any(f"/{file}".endswith(f"/{name.lstrip('/')}") for file in _files())


def find_broken_links(text: str, page: str) -> Iterator[str]:
    folder = (ROOT / page).parent
    for link in _LINK.findall(_BLOCK.sub("", text)):
        path, _, heading = link.partition("#")
        if "://" in link:
            continue
        target = folder / path if path else ROOT / page
        if not target.exists():
            yield f"{page}: there is no file {link}"
        elif heading and heading not in _headings(target.read_text(encoding="utf-8")):
            yield f"{page}: there is no heading {link}"


def _headings(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
