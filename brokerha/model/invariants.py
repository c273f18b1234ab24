"""An assertion that survives ``python -O`` and says what it knew.

A broken invariant is a fault of brokerha, never of a user, a peer or a disk: it stops the node at once, before the
fault is written down or sent on. Everything that the outside world can cause is an error of ``errors.py`` instead.

>>> invariant(1 < 2, "order")
"""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """A fault in brokerha itself; the node stops rather than carry on with a wrong state."""


def invariant(holds: bool, rule: str, **facts: object) -> None:
    """Raise `InvariantBroken` naming ``rule`` and ``facts`` unless ``holds``."""
    if not holds:
        known = ", ".join(f"{name}={value!r}" for name, value in sorted(facts.items()))
        message = f"{rule}: {known}" if known else rule
        raise InvariantBroken(message)
