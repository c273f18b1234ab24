"""MemoryHistory: the reading half of a journal without a disk; `MemoryJournal` is this, and how it is written."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from brokerha.journal.memory_content import Content
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result
from brokerha.model.records import Added, Outcomes, Remembered


class MemoryHistory:
    """`History` of what is durable of a node."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def lsn_of(self, txid: TxId) -> Lsn | None:
        """LSN of a synchronised transaction, or None."""
        return self._content.lsns.get(txid)

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Body of a transaction by origin and id, or None when it is not held."""
        held = self._content.bodies.get((origin, txid))
        return None if held is None else held[1]

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Up to ``limit`` entries of a stream from number ``start`` on."""
        first = start - self._content.current.stream_begin(origin)
        return self._content.streams.get(origin, [])[first : first + limit] if first >= 0 else []

    def ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        """Up to ``limit`` entries of the synchronised queue from ``first_lsn`` on."""
        first = first_lsn - self._content.current.first_lsn
        return self._content.ordered[first : first + limit] if first >= 0 else []

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Numbers of the epochs that added the entries of `ordered`, one for each; none where it gives none."""
        content = self._content
        found = {
            lsn: record.epoch
            for number, record in content.records.items()
            if isinstance(record, Added) and number not in content.rewinds.given
            for lsn in range(record.first_lsn, record.first_lsn + content.rewinds.count(number, record.entries))
        }
        return [found[lsn] for lsn, _ in enumerate(self.ordered(first_lsn, limit), first_lsn)]

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Up to ``limit`` results of execution from ``first_lsn`` on."""
        first = first_lsn - self._content.first_result
        return self._content.results[first : first + limit] if first >= 0 else []

    def first_lsn(self) -> Lsn:
        """Lowest LSN whose body is still held; one more than the last when the log is empty."""
        return self._content.current.first_lsn

    def epoch(self) -> int:
        """Of the entries that were added last."""
        return self._content.current.epoch

    def results_from(self) -> Lsn:
        """Lowest LSN whose result is held; one more than the last executed one when none is."""
        return self._content.current.results_from

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""
        content = self._content
        if lsn == content.current.results_from - 1:
            return content.current.base
        place = lsn - content.first_result
        return content.results[place].fingerprint if 0 <= place < len(content.results) else UNKNOWN

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, also after trimming; None when it was not, or was forgotten."""
        return self._content.rejected.get(lsn)

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered transactions up to an LSN, ``limit`` of all looked at, from a cursor on."""
        content = self._content
        page = sorted(txid for txid in content.lsns if txid.encode() > cursor)[:limit]
        ids = tuple((txid, content.lsns[txid]) for txid in page if content.lsns[txid] <= up_to)
        rejections = tuple((lsn, content.rejected[lsn]) for _, lsn in ids if lsn in content.rejected)
        return Remembered(ids, rejections, page[-1].encode() if len(page) == limit else b"")

    def items_at(self, lsn: Lsn) -> int:
        """Quads and keys at an LSN; 0 when that is not known."""
        content = self._content
        if lsn == content.current.executed_lsn:
            return content.current.items
        found = (
            record.items
            for number, record in content.records.items()
            if isinstance(record, Outcomes) and record.results and not content.rewinds.is_cut(number)
            if record.first_lsn + len(record.results) - 1 == lsn
        )
        return next(found, 0)

    def splits(self) -> list[Split]:
        """What was given up when the queue went back, by head lines, oldest first."""
        return list(self._content.rewinds.book.splits.values())

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Up to ``limit`` transactions of a split, from an old LSN on; none when they are not listed any more."""
        return self._content.rewinds.book.given_up(number, first_lsn, limit)

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Highest LSN up to which everything was stamped before a timestamp, as far as that is known; 0 for nothing."""
        content = self._content
        held = bisect_left(content.ordered, timestamp, key=itemgetter(0))
        if held:
            return content.current.first_lsn + held - 1
        mark = bisect_left(content.marks, timestamp, key=itemgetter(1))
        return content.marks[mark - 1][0] if mark else 0
