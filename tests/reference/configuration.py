"""The reference page of the cluster file: configuration.template with the tables of the settings in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from string import Template

from brokerha.nodes.config.cluster import sections
from brokerha.nodes.config.settings import WORDS, Setting, in_file

_PAGE = Path(__file__).with_name("configuration.template")


def page() -> str:
    """Return the whole page as Markdown."""
    tables = {section: _table(settings.values()) for section, settings in sections().items()}
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(tables)


def _table(rows: Iterable[Setting]) -> str:
    lines = ["| key | type | default | unit | bounds | at run time | meaning |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        default = "required" if row.is_required else row.default_text or f"`{in_file(row.default).strip(chr(34))}`"
        effect = "" if row.is_live is None else "at once" if row.is_live else "next start"
        cells = (f"`{row.name}`", WORDS[row.type], default, row.unit, row.bounds, effect, row.meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
