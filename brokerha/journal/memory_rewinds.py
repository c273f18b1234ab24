"""Going back in a journal without a disk: what a `Rewound` changes, in the simplest words.

    ordered, results, lsns, rejected     end at the LSN
    bodies of what is given up           have no LSN again: own ones are parked, foreign ones wait for what comes
    records of what is given up          stay for followers until what is before the `Rewound` is trimmed
    foreign bodies                       go with that trim, unless an unused stream or the recovered list of the epoch has them
    the book                             says what was given up (split_book.py)

rewinding.py does the same in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerha.journal.split_book import SplitBook, unpacked
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.records import Added, EpochInstalled, Outcomes, Record, Rewound

if TYPE_CHECKING:
    from brokerha.journal.memory_content import Content

Body = tuple[NodeId, TxId]


class Rewind(NamedTuple):
    """What trimming needs of a `Rewound`."""

    lsn: Lsn
    used: dict[NodeId, int]
    """How much of each stream was used then."""
    loose: dict[Body, int]
    """Foreign bodies that lost their LSN, with the numbers of their records."""


@dataclass(slots=True)
class Rewinds:
    """What a journal keeps of all times that its queue went back."""

    rows: dict[int, Rewind] = field(default_factory=dict)
    """By the number of the `Rewound`, until it is trimmed."""
    given: set[int] = field(default_factory=set)
    """Numbers of records that were given up, whole."""
    shorter: dict[int, int] = field(default_factory=dict)
    """How many LSNs are left of a record whose end was given up."""
    book: SplitBook = field(default_factory=SplitBook)

    def copy(self) -> Rewinds:
        """Return an independent copy."""
        return Rewinds(self.rows.copy(), self.given.copy(), self.shorter.copy(), self.book.copy())

    def packed(self) -> list[Any]:
        """What `read_rewinds` takes, in plain lists."""
        rows = [[n, r.lsn, list(r.used.items()), [[*b, at] for b, at in r.loose.items()]] for n, r in self.rows.items()]
        return [rows, sorted(self.given), sorted(self.shorter.items()), self.book.packed()]

    def count(self, number: int, items: Sequence[object]) -> int:
        """How many LSNs a record still has."""
        return self.shorter.get(number, len(items))

    def is_cut(self, number: int) -> bool:
        """Whether a record, or its end, was given up."""
        return number in self.given or number in self.shorter

    def forget(self, records: dict[int, Record]) -> None:
        """Forget what is known of records that are gone."""
        self.rows = {n: row for n, row in self.rows.items() if n in records}
        self.given &= records.keys()
        self.shorter = {n: count for n, count in self.shorter.items() if n in records}


def read_rewinds(data: Sequence[Any]) -> Rewinds:
    """Return what `Rewinds.packed` was called on."""
    rows, given, shorter, book = data
    return Rewinds(
        {n: Rewind(lsn, dict(used), {(o, txid): at for o, txid, at in loose}) for n, lsn, used, loose in rows},
        set(given),
        dict(shorter),
        unpacked(book),
    )


def go_back(content: Content, node: NodeId, number: int, record: Rewound) -> None:
    """Let the queue of ``node`` end at the LSN of record ``number``. Raises InvariantBroken."""
    current, rewinds, lsn = content.current, content.rewinds, record.lsn
    current.check_back(lsn)
    kept = lsn + 1 - current.first_lsn
    removed, txids = content.ordered[kept:], {txid for _, txid, _ in content.ordered[kept:]}
    _write_book(content, number, record)
    fingerprint, items = _content_at(content, lsn)
    del content.ordered[kept:]
    del content.results[max(0, lsn + 1 - content.first_result) :]
    content.first_result = min(content.first_result, lsn + 1)
    content.rejected = {at: why for at, why in content.rejected.items() if not lsn < at <= current.lsn}
    for _, txid, _ in removed:
        del content.lsns[txid]
    bodies = {body: content.bodies[body][0] for body in content.settled if body[1] in txids and body in content.bodies}
    content.settled = {body: min(at, lsn) for body, at in content.settled.items() if body[1] not in txids}
    again = content.parked.keys() | {txid for origin, txid in bodies if origin == node}
    content.parked = {txid: None for origin, txid in content.bodies if origin == node and txid in again}
    loose = {body: at for body, at in bodies.items() if body[0] != node}
    for earlier in [n for n, row in rewinds.rows.items() if row.lsn > lsn]:
        loose = {**rewinds.rows.pop(earlier).loose, **loose}
    for given, found in content.records.items():
        _give_up(content, given, found, lsn)
    rewinds.rows[number] = Rewind(lsn, dict(current.used), loose)
    last = content.ordered[-1] if content.ordered else None
    current.go_back(lsn, number, last, fingerprint, items)


def _write_book(content: Content, number: int, record: Rewound) -> None:
    current, end = content.current, record.lsn + 1
    known = range(current.results_from, current.executed_lsn + 1)

    def outcome(lsn: Lsn) -> str:
        if lsn in content.rejected:
            return REJECTED
        return APPLIED if lsn in known else UNKNOWN_OUTCOME

    removed = content.ordered[end - current.first_lsn :]
    given_up = [GivenUp(lsn, txid, origin, outcome(lsn)) for lsn, (_, txid, origin) in enumerate(removed, end)]
    stamped = removed[-1][0] if removed else 0
    head = Split(number, record.epoch, record.lineage, record.keeps_content, record.lsn, len(given_up), stamped, 0)
    content.rewinds.book.add(head, given_up)


def _content_at(content: Content, lsn: Lsn) -> tuple[bytes, int]:
    """Fingerprint and items at an LSN, as far as they are known."""
    current, rewinds = content.current, content.rewinds
    if lsn >= current.executed_lsn:
        return current.fingerprint, current.items
    if lsn < current.results_from:
        return (current.base if lsn == current.results_from - 1 else UNKNOWN), 0
    fingerprint = content.results[lsn - content.first_result].fingerprint
    for number, record in content.records.items():
        ends_there = isinstance(record, Outcomes) and record.first_lsn + len(record.results) - 1 == lsn
        if isinstance(record, Outcomes) and record.results and ends_there and not rewinds.is_cut(number):
            return fingerprint, record.items
    return fingerprint, 0


def _give_up(content: Content, number: int, record: Record, lsn: Lsn) -> None:
    """Note of a record which part of it is given up."""
    rewinds = content.rewinds
    if number in rewinds.given:
        return
    match record:
        case Added(first_lsn, entries) | Outcomes(first_lsn, entries) if entries:
            kept = min(rewinds.count(number, entries), lsn + 1 - first_lsn)
            if kept <= 0:
                rewinds.given.add(number)
            elif kept < len(entries):
                rewinds.shorter[number] = kept
        case Added(first_lsn) if first_lsn > lsn + 1:
            rewinds.given.add(number)
        case EpochInstalled(epoch) if epoch.base_lsn > lsn:
            rewinds.given.add(number)
        case _:
            pass


def in_order(content: Content) -> Iterator[tuple[int, Lsn, int, dict[NodeId, int]]]:
    """What trimming goes by: (number, first LSN, LSNs, what is used) of each record that uses up streams."""
    rewinds = content.rewinds
    for number, record in content.records.items():
        if number in rewinds.given:
            continue
        if isinstance(record, Added):
            yield number, record.first_lsn, rewinds.count(number, record.entries), record.used
        elif isinstance(record, EpochInstalled) and number > content.last_trimmed:
            yield number, record.epoch.base_lsn + 1, 0, record.epoch.starts
        elif number in rewinds.rows:
            yield number, rewinds.rows[number].lsn + 1, 0, rewinds.rows[number].used


def forget_loose(content: Content, waiting: Callable[[], set[Body]]) -> None:
    """Forget the foreign bodies that go with each trimmed `Rewound`; ``waiting`` gives those that unused streams have."""
    trimmed = [number for number in content.rewinds.rows if number <= content.last_trimmed]
    if not trimmed:
        return
    wanted = waiting()
    installed = content.records.get(content.current.installed_by)
    if isinstance(installed, EpochInstalled):
        wanted |= {(o, txid) for _, txid, o in installed.epoch.recovered if txid not in content.lsns}
    for number in trimmed:
        for body, at in content.rewinds.rows.pop(number).loose.items():
            is_loose = body not in content.settled and content.bodies.get(body, (0, b""))[0] == at
            if is_loose and body not in wanted:
                del content.bodies[body]
