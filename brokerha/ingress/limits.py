"""Limits of the ingress; each has a reason, and a refusal that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model.invariants import invariant

DEPTH_LIMIT: Final = 100
"""Deepest nesting of brackets, elements and JSON. Parsers, terms and algebra of the engine recurse: at some hundred times that
depth (ten for SPARQL) they overflow the stack, which ends the process; memory and time grow with the square of it before that."""
PLAIN_LIMIT_BYTES: Final = 32 * 1024
"""What is longer is not plain. To parse so much takes about a millisecond, as much as to hand it to a process."""
PLAIN_BRACKETS: Final = 16
"""What has more opening brackets than that is not plain: the engine takes milliseconds for thirty collections in each other."""
ENTITY_LIMIT_CHARS: Final = 1024
"""Longest value of an XML entity; ontologies use them for namespaces."""
ENTITIES_LIMIT: Final = 256
EXPANDED_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""All that the entities of one body may grow to."""


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """What a parser process may take for one body."""

    processes: int = 2
    """At most so many at once, and kept warm once they were needed."""
    cpu_s: int = 5
    cpu_s_per_mib: int = 2
    """Processor time for a body, and for each MiB of it."""
    memory_bytes: int = 384 * 1024 * 1024
    memory_per_byte: int = 24
    """Memory beyond what the process has at its start, and for each byte of the body: a parsed quad takes about 20 times its text."""
    wait_s: float = 20.0
    """How long one waits for a process to be free, NotReady beyond it."""
    wall_factor: int = 6
    """Wall time is so many times the processor time, because the machine may be busy; NotReady beyond it."""

    def check(self) -> None:
        """Stop at once when the numbers make no sense."""
        invariant(min(self.processes, self.cpu_s, self.memory_bytes, self.wall_factor) > 0, "a parser may do something")

    def cpu_s_of(self, size_bytes: int) -> int:
        """Seconds of processor time for a body of this size."""
        return self.cpu_s + self.cpu_s_per_mib * size_bytes // (1024 * 1024)

    def memory_of(self, size_bytes: int) -> int:
        """Bytes of memory for a body of this size."""
        return self.memory_bytes + self.memory_per_byte * size_bytes
