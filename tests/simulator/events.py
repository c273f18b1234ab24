"""Virtual time: a heap of events, one random generator, and the story of a run.

    at(when, what) ---> heap ---> step: the earliest event happens ---> more events

This module does not know the meaning of events. Equal options give equal runs: simultaneous events happen in planned order.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TextIO
from zlib import crc32

from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, ClockReserved, IdsTaken, Outcomes, PeerJournal, Started
from brokerha.model.requests import Reply, Submit
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Apply, Bodies, Envelope, Execute, Executed, Fetch, Outgoing, Post, Progress
from tests.simulator.options import Options

TOLD_CHARS = 300
"""Characters of a message that the story shows: a chunk of a snapshot has thousands of bytes."""
KEPT = 40
"""Lines of the story of a failing run."""

Event = tuple[int, str, str, object]
LOOK_US = 50_000
"""Interval at which the liveness phase checks whether the cluster has converged."""
LIVENESS_STEPS = 30_000
"""Steps after which a cluster that has not converged counts as stuck, whatever the virtual clock shows."""


class Trace:
    """Takes events; knows the digest and the last lines.

    The story of a run: one line for each event, printed only on request, and a digest of all events.

        12.034512 m2  takes     Post #7 from m1 (lsn 3, promise …481, have m1:4 m2:2)
        12.034612 m2  writes    Appended m1[3..4], ClockReserved
        12.034612 m2  sends     Post #9 to m3: lost

    Every event adds a few bytes to the digest, so that two runs are the same exactly when their digests are equal. The last events
    are kept as objects, and become text only for the report of a violation. Messages are frozen, so the text shows them as they
    were sent.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self.crc = 0
        self._out = out
        self._last: deque[Event] = deque(maxlen=KEPT)

    def note(self, now_us: int, node: str, verb: str, what: object = "") -> None:
        """Note one event: virtual time, node or "world", a verb, and an object that `tell` can print."""
        self.crc = crc32(b"%d%a%a" % (now_us, node, verb), self.crc)
        event = (now_us, node, verb, what)
        self._last.append(event)
        if self._out is not None:
            self._out.write(line(event) + "\n")

    def last_lines(self) -> list[str]:
        """Return the last events as text, oldest first."""
        return [line(event) for event in self._last]


def line(event: Event) -> str:
    """Return one event as text."""
    now_us, node, verb, what = event
    text = what if isinstance(what, str) else tell(what)
    return f"{now_us / 1_000_000:12.6f} {node:<6} {verb:<9} {text}".rstrip()


def tell(thing: object) -> str:
    """Describe a message, record, request or a list of them in few words."""
    match thing:
        case Envelope():
            return f"{tell(thing.message)} from {thing.sender}.{thing.incarnation}"
        case Outgoing():
            return f"{tell(thing.message)} to {thing.to}"
        case Row():
            return _row(thing)
        case Post() | Bodies() | Fetch() | Execute() | Executed() | Apply() | Progress():
            return _message(thing)
        case Submit():
            return f"Submit {thing.txid} ({thing.level} {thing.copies}, ticket {thing.ticket}, {thing.timeout_ms} ms)"
        case Reply():
            reason = f": {thing.error}, {thing.reason}" if thing.error else ""
            return f"ticket {thing.ticket} {thing.txid} {thing.status} at {thing.lsn}{reason}"
        case list() | tuple():
            return ", ".join(tell(item) for item in thing)
        case _:
            return _record(thing)


def _row(row: Row) -> str:
    have = " ".join(f"{origin}:{count}" for origin, count in row.have.items())
    heard = ",".join(row.heard) or "nobody"
    return f"{row.node}.{row.incarnation}#{row.number} lsn {row.lsn} promise {_short(row.promise)} have {have} hears {heard}"


def _message(message: object) -> str:
    match message:
        case Post():
            lists = " ".join(f"{o}[{s}..{s + len(e) - 1}]" for o, s, e in message.streams)
            relays = " ".join(f"{row.node}.{row.incarnation}#{row.number}" for row in message.relayed)
            lists = f" lists {lists}" if lists else ""
            relays = f" relays {relays}" if relays else ""
            return f"Post({_row(message.row)}{lists}{relays})"
        case Bodies():
            return f"Bodies({_names(f'{o}/{t}' for o, t, _ in message.items)})"
        case Fetch():
            return f"Fetch({_names(f'{o}/{t}' for o, t in message.wanted)})"
        case Execute():
            return f"Execute({_range(message.first_lsn, len(message.items))})"
        case Executed():
            return f"Executed({_range(message.first_lsn, len(message.results))}, applied {message.applied_lsn})"
        case Apply():
            return f"Apply({_range(message.first_lsn, len(message.items))})"
        case Progress():
            trouble = f", {message.trouble}" if message.trouble else ""
            load = f", loading LSN {message.load_lsn}" if message.load_lsn else ""
            return f"Progress({message.journal} applied {message.applied_lsn}, {message.follows}, {message.state}{load}{trouble})"
        case _:
            return type(message).__name__


def _record(record: object) -> str:
    match record:
        case Started(incarnation):
            return f"Started {incarnation}"
        case ClockReserved(high_water):
            return f"ClockReserved {_short(high_water)}"
        case PeerJournal(peer, journal):
            return f"PeerJournal {peer}={journal}"
        case Accepted(items):
            return f"Accepted {_names(txid for txid, _ in items)}"
        case BodiesHeld(items):
            return f"BodiesHeld {_names(f'{o}/{t}' for o, t, _ in items)}"
        case Appended(origin, start, entries):
            return f"Appended {origin}[{start}] {_names(f'{_short(ts)}/{txid}' for ts, txid in entries)}"
        case Added(first_lsn, entries):
            return f"Added {first_lsn}: {_names(f'{_short(ts)}/{txid}/{o}' for ts, txid, o in entries)}"
        case IdsTaken(ids):
            return f"IdsTaken {_names(f'{txid}@{lsn}' for txid, lsn in ids)}"
        case Outcomes(first_lsn, results):
            return f"Outcomes {_range(first_lsn, len(results))}"
        case _:
            text = str(record)
            return text if len(text) <= TOLD_CHARS else f"{text[:TOLD_CHARS]}… ({len(text)} characters)"


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return " ".join(listed[:6]) + more


def _range(first: int, count: int) -> str:
    return f"{first}..{first + count - 1}" if count else f"nothing from {first}"


def _short(timestamp: int) -> str:
    """Return seconds and microseconds within a few hours, which distinguish the timestamps of one run."""
    return f"{timestamp // 1_000_000 % 10_000}.{timestamp % 1_000_000:06d}"


class Events:
    """The events of a world, one after the other."""

    def __init__(self, options: Options, out: TextIO | None = None) -> None:
        self.options = options
        self.rng = Random(options.seed)
        self.now_us = 0
        self.steps = 0
        self.trace = Trace(out)
        self.faults_seen: Counter[str] = Counter()
        self.is_calm = False
        """True when faults are over."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._event = 0

    def at(self, when_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event; of simultaneous events, the one planned first happens first."""
        self._event += 1
        heapq.heappush(self._heap, (when_us, self._event, action, arguments))

    def _step(self) -> None:
        self.now_us, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)

    def run_until(self, when_us: int, steps: int = 1_000_000_000) -> None:
        """Run all events up to a moment, or up to ``steps`` more turns."""
        last = self.steps + steps
        while self._heap and self._heap[0][0] <= when_us and self.steps < last:
            self._step()
        if self.steps < last:
            self.now_us = max(self.now_us, when_us)

    def run_while(self, goes_on: Callable[[], bool], for_us: int, every_us: int = LOOK_US) -> bool:
        """Run events until ``goes_on`` returns False, or the time is over; return whether it returned False."""
        end_us = self.now_us + for_us
        last = self.steps + LIVENESS_STEPS
        while goes_on():
            if self.now_us >= end_us or self.steps >= last:
                return False
            self.run_until(self.now_us + every_us, LIVENESS_STEPS)
        return True
