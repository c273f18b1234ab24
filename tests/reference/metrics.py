"""The reference page of the metrics, from their table."""

from __future__ import annotations

from typing import Final

from brokerha.http.operating.families import SECTIONS

_PAGE: Final = """\
# Metrics

Written from the code: `python -m tests.reference`. How to have them collected, and which ones to be woken up by:
[monitoring](../monitoring.md). All names begin with `brokerha_`. A counter begins at 0 with the process. A histogram `x` has the samples
`x_bucket`, with the label `le`, `x_sum` and `x_count`.
"""


def page() -> str:
    """Return the text of docs/reference/metrics.md."""
    parts = [_PAGE]
    for title, section in SECTIONS.items():
        lines = ["| metric | type | labels | meaning | worth a look when |", "|---|---|---|---|---|"]
        for name, family in section.items():
            labels = ", ".join(f"`{label}`" for label in family.labels)
            lines.append(f"| `{name}` | {family.type} | {labels} | {family.meaning} | {family.alarm} |")
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
