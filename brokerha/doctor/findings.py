"""One finding: how bad it is, what was found, and the command that mends it; and the exit code of all of them.

>>> text(Finding(WARNING, "disk", "3.0 GB are free", "df -h /srv"))
'warning  disk: 3.0 GB are free - df -h /srv'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
LEVELS: Final = (OK, WARNING, PROBLEM)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing."""

    level: str
    """One of `LEVELS`. What cannot be known is ok, with ``not checked`` and the reason as its text."""
    subject: str
    """``m1 data``, ``broker``, ``clock``: what it is about."""
    what: str
    command: str = ""
    """What mends it; empty when all is well."""


def not_checked(subject: str, why: str) -> Finding:
    """Nobody can say from here: no reason to worry, and none to feel safe."""
    return Finding(OK, subject, f"not checked: {why}")


def judged(subject: str, ok: str, *cases: tuple[object, str, str, str]) -> Finding:
    """The first case that holds, of (condition, level, what, command); without any all is well, and ``ok`` says how.

    >>> judged("disk", "it is large", (False, PROBLEM, "full", "rm"), (True, WARNING, "small", "df")).what
    'small'
    """
    for holds, level, what, command in cases:
        if holds:
            return Finding(level, subject, what, command)
    return Finding(OK, subject, ok)


def text(finding: Finding) -> str:
    """The finding as a line for people."""
    mended = f" - {finding.command}" if finding.command else ""
    return f"{finding.level:<8} {finding.subject}: {finding.what}{mended}"


def worst(findings: Iterable[Finding]) -> str:
    """The worst level of all; ok without any.

    >>> worst([Finding(OK, "a", "b"), Finding(WARNING, "a", "b")])
    'warning'
    """
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
