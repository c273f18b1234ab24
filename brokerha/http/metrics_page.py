"""docs/reference/metrics.md: every metric, from the table that /metrics is written with.

    python -m brokerha.http.metrics_page > docs/reference/metrics.md
"""

from __future__ import annotations

import sys

from brokerha.http.families import SECTIONS

_START = """\
# Metrics

Written from the code: `python -m brokerha.http.metrics_page`. How to have them collected, and which ones to be woken up by:
[monitoring](../monitoring.md). All names begin with `brokerha_`. A counter begins at 0 with the process. A histogram `x` has the samples
`x_bucket`, with the label `le`, `x_sum` and `x_count`.
"""


def page() -> str:
    """docs/reference/metrics.md."""
    parts = [_START]
    for title, section in SECTIONS.items():
        lines = ["| metric | type | labels | meaning | worth a look when |", "|---|---|---|---|---|"]
        for name, family in section.items():
            labels = ", ".join(f"`{label}`" for label in family.labels)
            lines.append(f"| `{name}` | {family.type} | {labels} | {family.meaning} | {family.alarm} |")
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
