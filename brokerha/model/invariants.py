"""An assertion that survives ``python -O`` and carries facts.

A broken invariant is a bug of brokerha, never the fault of a user, a peer or a disk. It stops the node at once, before the wrong
state is written or sent. Faults that the outside world can cause are errors of ``errors.py`` instead.

>>> invariant(1 < 2, "order")
"""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """A bug in brokerha itself; the node stops rather than carry on with a wrong state."""


def invariant(holds: bool, rule: str, **facts: object) -> None:
    """Raise `InvariantBroken` naming ``rule`` and ``facts`` unless ``holds``."""
    if not holds:
        known = ", ".join(f"{name}={value!r}" for name, value in sorted(facts.items()))
        message = f"{rule}: {known}" if known else rule
        raise InvariantBroken(message)
