"""The page on improving a model explains every finding, and no other ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from components.report import findings
from tests.docs.markdown import ROOT

_PAGE = ROOT / "docs" / "how-to" / "improve.md"


def list_texts() -> list[str]:
    """Return the text of each finding as a regular expression, from the code that makes it."""
    tree = ast.parse(Path(str(findings.__file__)).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call.args[1] for call in calls if getattr(call.func, "id", "") == "Finding"]
    texts = [_as_pattern(text) for text in made if isinstance(text, ast.JoinedStr | ast.Constant)]
    # Those of the files are a table; the others repeat what the verdict says in its headline.
    texts += [f".+ {several}" for _, several, _, _ in findings._FILES.values()]
    assert len(made) == len(texts) - len(findings._FILES) + 2
    return [*texts, ".+ images are too few to show .+"]


def _as_pattern(text: ast.JoinedStr | ast.Constant) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in parts)


def test_every_finding_has_an_entry_and_every_entry_is_a_finding() -> None:
    page = _PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"^\| finding \|.*\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    entries = [row.split(" | ")[0].strip("| ") for table in tables for row in table.splitlines()]
    texts = list_texts()
    assert len(texts) > 15
    missing = [text for text in texts if not any(re.fullmatch(text, entry) for entry in entries)]
    assert not missing, f"{_PAGE} explains none of {missing}"
    old = [entry for entry in entries if not any(re.fullmatch(text, entry) for text in texts)]
    assert not old, f"{_PAGE} explains {old}, which the report does not say"


def test_the_checks_are_its_headings() -> None:
    bold = re.findall(r"^\*\*(.+)\*\*$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name[0].lower() + name[1:] for name in bold} == set(findings._CHECKS)
