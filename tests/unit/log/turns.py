"""Makes records that follow on one another, as a master's core would: the author of a log for tests.

author = Author("m1", "m2")
author.accept("a", "b")       Accepted        parked
author.stamp("a", "b")        Appended m1     in the own stream
author.hold("m2", "c")        BodiesHeld
author.append("m2", "c")      Appended m2
author.add(3)                 Added           the next three of all streams by timestamp; duplicates are left out
author.execute(3)             Outcomes
author.rebase(2)              Rebased         back or forward to LSN 2
author.go_back(2)             Rewound         what is after LSN 2 is given up
author.bring(entries)         Added           of a tail or a recovered list: no stream is used
author.take_state(9)          StateTaken      the queue goes on after LSN 9
author.install(2, [...], {})  EpochInstalled  all streams end; they go on after a gap of so many numbers
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.log.log import Log
from brokerha.model.epochs import Epoch
from brokerha.model.forgetting import forgetting_id, forgotten_below, is_forgetting
from brokerha.model.ids import Entry, Ordered
from brokerha.model.operations import Result
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    EpochInstalled,
    Outcomes,
    Rebased,
    Record,
    Rewound,
    StateTaken,
)
from brokerha.ports.journal import Journal

REJECTED_EACH = 5
"""Each so many-th transaction is rejected."""


def body_of(txid: str, origin: str = "m1") -> bytes:
    """Body that the author gives a transaction."""
    return f"body of {txid} from {origin}".encode()


def fingerprint_after(lsn: int) -> bytes:
    """Fingerprint that the author gives the content at an LSN."""
    return b"fingerprint-%d" % lsn


def result_of(lsn: int) -> Result:
    """Result that the author gives the transaction at an LSN."""
    if lsn % REJECTED_EACH == 0:
        return Result("rejected", f"no place for {lsn}", b"", fingerprint_after(lsn))
    return Result("applied", "", b"effect of %d" % lsn, fingerprint_after(lsn))


class Author:
    """Keeps what is needed to make the next record; the first node is the own one."""

    def __init__(self, *nodes: str) -> None:
        self.own = nodes[0]
        self.streams: dict[str, list[Entry]] = {node: [] for node in nodes}
        self.used: dict[str, int] = dict.fromkeys(nodes, 0)
        self.lsn = 0
        self.executed = 0
        self.clock = 0
        self.known: dict[str, int] = {}
        """The newest LSN of each id."""
        self.replaced: list[tuple[int, str, int]] = []
        """Of ids that came again: the new LSN, the id, the LSN before."""

    def note(self, txid: str, lsn: int) -> None:
        """Note that an id has an LSN."""
        if txid in self.known:
            self.replaced.append((lsn, txid, self.known[txid]))
        self.known[txid] = lsn

    def knows(self, txid: str) -> bool:
        """Tell whether an id is in the queue and not forgotten."""
        floor = max([forgotten_below(each) for each in self.known if is_forgetting(each)], default=0)
        return self.known.get(txid, -1) >= floor

    def accept(self, *txids: str) -> Accepted:
        return Accepted(tuple((txid, body_of(txid, self.own)) for txid in txids))

    def hold(self, origin: str, *txids: str) -> BodiesHeld:
        return BodiesHeld(tuple((origin, txid, body_of(txid, origin)) for txid in txids))

    def stamp(self, *txids: str) -> Appended:
        return self.append(self.own, *txids)

    def append(self, origin: str, *txids: str) -> Appended:
        entries = []
        for txid in txids:
            self.clock += 10
            entries.append((self.clock, txid))
        start = len(self.streams[origin])
        self.streams[origin] += entries
        return Appended(origin, start, tuple(entries))

    def add(self, count: int, epoch: int = 1, before: Sequence[Ordered] = ()) -> Added:
        """Use up to ``count`` entries; a transaction that has an LSN already is used up only.

        Entries of a recovered list may come ``before``.
        """
        waiting: list[Ordered] = [
            (timestamp, txid, origin)
            for origin, entries in self.streams.items()
            for timestamp, txid in entries[self.used[origin] :]
        ]
        first, entries = self.lsn + 1, list(self.bring(before).entries)
        for entry in sorted(waiting)[:count]:
            self.used[entry[2]] += 1
            if not self.knows(entry[1]):
                self.lsn += 1
                self.note(entry[1], self.lsn)
                entries.append(entry)
        return Added(first, tuple(entries), {node: used for node, used in self.used.items() if used}, epoch)

    def bring(self, entries: Sequence[Ordered], epoch: int = 1) -> Added:
        """Add entries that are used up in no stream."""
        first = self.lsn + 1
        for _, txid, _ in entries:
            self.lsn += 1
            self.note(txid, self.lsn)
        return Added(first, tuple(entries), {}, epoch)

    def begin(self, origin: str, gap: int) -> int:
        """End a stream and leave a gap behind it; returns the number of the next entry."""
        self.streams[origin] = [*self.streams.get(origin, []), *[(0, "")] * gap]
        self.used[origin] = len(self.streams[origin])
        return self.used[origin]

    def install(self, number: int, recovered: Sequence[Ordered], gaps: dict[str, int], proposer: str = "m2") -> EpochInstalled:
        starts = {origin: self.begin(origin, gaps.get(origin, 0)) for origin in {**self.streams, **gaps}}
        base = next((txid for txid, lsn in self.known.items() if lsn == self.lsn), "")
        members = tuple(sorted(starts))
        return EpochInstalled(Epoch(number, proposer, members, self.lsn, base, tuple(recovered), starts, self.clock))

    def execute(self, count: int) -> Outcomes:
        first, count = self.executed + 1, min(count, self.lsn - self.executed)
        self.executed += count
        results = tuple(result_of(lsn) for lsn in range(first, first + count))
        return Outcomes(first, results, self.executed)

    def rebase(self, lsn: int) -> Rebased:
        self.executed = lsn
        return Rebased(lsn, b"copied at %d" % lsn, 1_000 + lsn, "by hand")

    def take_state(self, lsn: int) -> StateTaken:
        """Go on after an LSN; ids come before, by `IdsTaken`."""
        self.lsn = self.executed = lsn
        self.clock += 10
        return StateTaken(lsn, (self.clock, f"s{lsn}", "m2"), b"taken at %d" % lsn, 1_000 + lsn)

    def go_back(self, lsn: int, epoch: int = 1, lineage: int = 2, *, keeps_content: bool = False) -> Rewound:
        self.sink(lsn)
        return Rewound(lsn, epoch, lineage, keeps_content)

    def sink(self, lsn: int) -> None:
        """Let the queue end at an LSN again."""
        self.lsn, self.executed = lsn, min(lsn, self.executed)
        for at, txid, before in reversed(self.replaced):
            if at > lsn:
                self.known[txid] = before
        self.replaced = [each for each in self.replaced if each[0] <= lsn]
        self.known = {txid: at for txid, at in self.known.items() if at <= lsn}

    def forget(self, journal: Journal, below: int) -> None:
        """Forget ids for good: by an entry, which is trimmed then."""
        journal.append(self.whole(forgetting_id(below)))
        while journal.trim(self.lsn + 1):
            pass

    def whole(self, *txids: str) -> list[Record]:
        """One turn that takes own transactions from their acceptance to their results."""
        return [*self.synchronised(*txids), self.execute(len(txids))]

    def synchronised(self, *txids: str) -> list[Record]:
        """The same without their results."""
        return [self.accept(*txids), self.stamp(*txids), self.add(len(txids))]


def filled(journal: Journal, turns: int, per_turn: int = 1, *, author: Author | None = None) -> Author:
    """Append turns of own transactions named t1, t2, … and return the author."""
    author = author or Author("m1", "m2")
    for _ in range(turns):
        first = author.lsn + 1
        journal.append(author.whole(*[f"t{n}" for n in range(first, first + per_turn)]))
    return author


def agreed(journal: Journal, other: Journal, txids: Sequence[str], nodes: Sequence[str]) -> dict[str, object]:
    """Answers that two journals with the same records must both give, whatever each of them has trimmed."""
    state = journal.state()
    state.promised_view = 0
    first = max(journal.first_lsn(), other.first_lsn())
    results = max(journal.results_from(), other.results_from())
    known = [txid for txid in txids if other.lsn_of(txid) is not None]
    unordered = [txid for txid in txids if journal.lsn_of(txid) is None and other.lsn_of(txid) is None]
    held = [txid for _, txid, _ in other.ordered(first, state.lsn)]
    # What an epoch dropped goes with a trim of each.
    dropped = {body for log in (journal, other) if isinstance(log, Log) for body in log._content.dropped}
    begin = max(journal.numbered_from(), other.numbered_from())
    return {
        "state": state,
        "last": journal.last_number,
        "records": journal.numbered(begin, journal.last_number, 1 << 40),
        "lsns": {txid: journal.lsn_of(txid) for txid in known if journal.lsn_of(txid) is not None},
        "bodies": {
            (node, txid): journal.body(node, txid) for node in nodes for txid in (*held, *unordered) if (node, txid) not in dropped
        },
        "ordered": journal.ordered(first, state.lsn),
        "epochs": journal.epochs(first, state.lsn),
        "results": journal.results(results, state.lsn),
        "rejections": [journal.rejection(lsn) for lsn in range(first, state.lsn + 1)],
        "fingerprints": [journal.fingerprint_at(lsn) for lsn in range(results - 1, state.lsn + 1)],
    }


def everything(journal: Journal, txids: Sequence[str], nodes: Sequence[str]) -> dict[str, object]:
    """All answers of a journal, to compare two of them."""
    state = journal.state()
    first = journal.first_lsn()
    return {
        "state": state,
        "first": first,
        "numbers": (journal.numbered_from(), journal.last_number),
        "records": list(journal.records()),
        "lsns": [journal.lsn_of(txid) for txid in txids],
        "bodies": {(node, txid): journal.body(node, txid) for node in nodes for txid in txids},
        "streams": {(node, start): journal.stream(node, start, 7) for node in nodes for start in range(0, 40, 3)},
        "ordered": {lsn: journal.ordered(lsn, 9) for lsn in range(1, state.lsn + 2, 4)},
        "results": {lsn: journal.results(lsn, 5) for lsn in range(1, state.lsn + 2, 3)},
        "rejections": [journal.rejection(lsn) for lsn in range(state.lsn + 2)],
        "before": [journal.lsn_before(timestamp) for timestamp in range(0, 400, 25)],
        "results from": journal.results_from(),
        "fingerprints": [journal.fingerprint_at(lsn) for lsn in range(state.lsn + 2)],
    }
