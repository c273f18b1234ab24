"""Limits of the ingress; each has a reason, and a refusal that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model.invariants import invariant

DEPTH_LIMIT: Final = 100
"""Deepest nesting of brackets, elements and JSON. Parsers, terms and algebra of the engine recurse: at some hundred times that
depth (ten for SPARQL) they overflow the stack, which ends the process; before that, memory and time grow with its square."""
PLAIN_LIMIT_BYTES: Final = 32 * 1024
"""Longer input is not plain. Parsing this much takes about a millisecond, as much as passing it to a process."""
PLAIN_BRACKETS: Final = 16
"""Input with more opening brackets is not plain: the engine takes milliseconds for thirty nested collections."""
ENTITY_LIMIT_CHARS: Final = 1024
"""Longest value of an XML entity; ontologies use them for namespaces."""
ENTITIES_LIMIT: Final = 256
EXPANDED_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Highest total size of the expanded entities of one body."""


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits of a parser process for one body."""

    processes: int = 2
    """Most processes; a started one stays warm."""
    cpu_s: int = 5
    cpu_s_per_mib: int = 2
    """Processor time for a body, and for each MiB of it."""
    memory_bytes: int = 384 * 1024 * 1024
    memory_per_byte: int = 24
    """Memory beyond that of the process at its start, and per byte of the body: a parsed quad takes about 20 times its text."""
    wait_s: float = 20.0
    """Longest wait for a free process; then NotReady."""
    wall_factor: int = 6
    """Wall time as a multiple of the processor time, because the machine can be busy; then NotReady."""

    def check(self) -> None:
        """Check that the numbers are consistent."""
        invariant(min(self.processes, self.cpu_s, self.memory_bytes, self.wall_factor) > 0, "a parser may do something")

    def cpu_s_of(self, size_bytes: int) -> int:
        """Return the seconds of processor time for a body of this size."""
        return self.cpu_s + self.cpu_s_per_mib * size_bytes // (1024 * 1024)

    def memory_of(self, size_bytes: int) -> int:
        """Return the bytes of memory for a body of this size."""
        return self.memory_bytes + self.memory_per_byte * size_bytes
