"""What was run, on what, with what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from components.report.facts import ReportFacts, RunHeader
from components.report.page.elements import details, paragraph, table, terms, text


def write_run(facts: ReportFacts) -> str:
    """Write the header, and configuration and versions to open."""
    header = facts.header
    values = sum(map(len, header.config.values()))
    return "\n".join(
        (
            terms(_describe(header)),
            details(f"Configuration: {values:,} values", _list_config(header.config))
            if values
            else paragraph("The configuration is not known."),
            details(
                f"Versions of {len(header.versions):,} packages", _list_versions(header.versions)
            )
            if header.versions
            else paragraph("The versions of the packages are not known."),
        )
    )


def _describe(header: RunHeader) -> Iterator[tuple[str, str]]:
    yield "Pipeline", text(header.pipeline)
    yield "Data", f"<code>{text(header.data)}</code>"
    if header.span is not None:
        version = "" if header.version is None else f", version {header.version}"
        yield "Span", f"{header.span}{version}"
    yield "Fingerprint of the listing", _name_digest(header.fingerprint)
    yield "Digest of the code", _name_digest(header.code)
    started = header.started and f'<time datetime="{header.started}">{text(header.started)}</time>'
    yield "Training began", started or "not known"
    seconds = header.training_seconds
    yield "Training took", "not known" if seconds is None else write_duration(seconds)


def _name_digest(digest: str) -> str:
    return f"<code>{text(digest)}</code>" if digest else "not known"


def write_duration(seconds: float) -> str:
    """Write a time in the two largest units it has."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _list_config(config: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(
        table(
            (text(section), "Value"),
            ([text(name), f"<code>{text(_write(value))}</code>"] for name, value in fields.items()),
            name=f"Configuration of {section}",
            style="words",
        )
        for section, fields in config.items()
        if fields
    )


def _write(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _list_versions(versions: Mapping[str, str]) -> str:
    rows = ([text(name), f"<code>{text(version)}</code>"] for name, version in versions.items())
    return table(("Package", "Version"), rows, name="Versions of the packages", style="words")
