"""Which anomalies a history of transactions shows, after Adya's definitions as Elle finds them in lists to which is only appended.

A transaction is a list of operations on registers that hold lists: it reads one, or appends a number to it. Each number is
appended once in the whole history, so the lists that were read say in which order their versions came, who wrote each and who
read it. Between two transactions there is an edge

    ww    b appended to a register right after a
    wr    b read the version that a made
    rw    a read a version, and b made the next one

and what a level forbids is a cycle of certain edges.

| anomaly | what it is | forbidden by |
|---|---|---|
| lost | a committed append is in no later version, or versions do not follow from each other | snapshot |
| G1a | a read of what was rolled back | read-committed |
| G1b | a read of a version in the middle of another transaction | read-committed |
| G0 | a cycle of ww | read-committed |
| G1c | a cycle of ww and wr | read-committed |
| G-single | a cycle with one rw | snapshot |
| G2 | a cycle with several rw, as in a write skew | serializable |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

LOST, G1A, G1B, G0, G1C, G_SINGLE, G2 = "lost", "G1a", "G1b", "G0", "G1c", "G-single", "G2"
FORBIDDEN: Final[Mapping[str, frozenset[str]]] = {
    "read-committed": frozenset({G1A, G1B, G0, G1C}),
    "snapshot": frozenset({G1A, G1B, G0, G1C, LOST, G_SINGLE}),
    "serializable": frozenset({G1A, G1B, G0, G1C, LOST, G_SINGLE, G2}),
}
Register = str
Version = tuple[int, ...]


@dataclass
class Ran:
    """One transaction that was run."""

    committed: bool = True
    reads: list[tuple[Register, Version]] = field(default_factory=list)
    """Of what others wrote: before its own first append to that register."""
    appends: list[tuple[Register, int]] = field(default_factory=list)


def anomalies(history: Sequence[Ran], last: Mapping[Register, Version]) -> set[str]:
    """What is wrong with a history; ``last`` is what the registers held when all was over."""
    writer = {number: at for at, ran in enumerate(history) for _, number in ran.appends}
    found = set(_of_versions(history, last, writer))
    ww, wr, rw = _edges(history, last, writer)
    if _has_cycle(ww):
        found.add(G0)
    elif _has_cycle(_joined(ww, wr)):
        found.add(G1C)
    plain = _joined(ww, wr)
    singles = [edge for edge in _listed(rw) if _leads(plain, edge[1], edge[0])]
    if singles:
        found.add(G_SINGLE)
    elif not found & {G0, G1C} and _has_cycle(_joined(plain, rw)):
        found.add(G2)
    return found


def _of_versions(history: Sequence[Ran], last: Mapping[Register, Version], writer: Mapping[int, int]) -> Iterable[str]:
    for at, ran in enumerate(history):
        if ran.committed:
            for register, number in ran.appends:
                if number not in last.get(register, ()):
                    yield LOST
        for register, version in ran.reads:
            if last.get(register, ())[: len(version)] != version:
                yield LOST
            if any(not history[writer[number]].committed for number in version if writer[number] != at):
                yield G1A
            if version and writer[version[-1]] != at:
                own = [number for where, number in history[writer[version[-1]]].appends if where == register]
                if version[-1] != own[-1]:
                    yield G1B


Edges = dict[int, set[int]]


def _edges(history: Sequence[Ran], last: Mapping[Register, Version], writer: Mapping[int, int]) -> tuple[Edges, Edges, Edges]:
    ww: Edges = {}
    wr: Edges = {}
    rw: Edges = {}
    for version in last.values():
        for before, after in pairwise(version):
            _add(ww, writer[before], writer[after])
    for at, ran in enumerate(history):
        if not ran.committed:
            continue
        for register, version in ran.reads:
            if version:
                _add(wr, writer[version[-1]], at)
            whole = last.get(register, ())
            if whole[: len(version)] == version and len(whole) > len(version):
                _add(rw, at, writer[whole[len(version)]])
    return ww, wr, rw


def _add(edges: Edges, first: int, second: int) -> None:
    if first != second:
        edges.setdefault(first, set()).add(second)


def _joined(*several: Edges) -> Edges:
    joined: Edges = {}
    for edges in several:
        for first, seconds in edges.items():
            joined.setdefault(first, set()).update(seconds)
    return joined


def _listed(edges: Edges) -> list[tuple[int, int]]:
    return [(first, second) for first, seconds in edges.items() for second in seconds]


def _leads(edges: Edges, start: int, end: int) -> bool:
    """Whether a path leads from one to the other."""
    seen, wanted = {start}, deque([start])
    while wanted:
        at = wanted.popleft()
        if at == end:
            return True
        fresh = edges.get(at, set()) - seen
        seen |= fresh
        wanted += fresh
    return False


def _has_cycle(edges: Edges) -> bool:
    """Whether somebody is reached from itself: what has no edge that comes in is taken away until nothing changes."""
    incoming: dict[int, int] = {}
    for _, second in _listed(edges):
        incoming[second] = incoming.get(second, 0) + 1
    free = deque(first for first in edges if first not in incoming)
    left = dict(edges)
    while free:
        for second in left.pop(free.popleft(), ()):
            incoming[second] -= 1
            if not incoming[second]:
                free.append(second)
    return any(left.values())
