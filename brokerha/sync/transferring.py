"""State transfer: taken over when no master holds the next entry of the queue any more (R16).

    receiver                                       source
    TailWanted 101 ->            <- Tail: nothing, it begins at 5,000 here       all that are heard and ahead say so
    StateWanted 0 ->             <- State 7,000: the entry there, its fingerprint, a page of ids
      journal: IdsTaken
    StateWanted 7,000, cursor -> <- State 7,000: the last page
      journal: IdsTaken, StateTaken                the queue ends at LSN 7,000 now; the tail goes on after it

A source answers from its journal alone and remembers no receiver. The position is an executed LSN whose entry it holds, in the
middle of the held ones: so it can trim its log for a while and still hold the entries after the position. If it is trimmed past the
position, or another source is asked, the transfer begins anew.

Pages are durable as they come: the receiver needs memory for one. Before the last one, it only knows the ids of more transactions,
all synchronised. So a crash only costs the pages that were read.

Must never: ask while a master that is heard still has the next entry; take a state that is not ahead of the own queue.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.forgetting import forgotten_below, is_forgetting
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.records import History, IdsTaken, Remembered, StateTaken
from brokerha.model.wire.epoch_messages import State, StateWanted
from brokerha.model.wire.messages import Outgoing
from brokerha.sync.round import RoundResult
from brokerha.sync.state import SyncState

PAGE_IDS: Final = 2_000
"""Transactions in one page; measured with a journal on a disk: about 20 ms."""
PAGE_BYTES: Final = 1_000_000
"""Approximate limit of the bytes of a page."""
MOST_PATIENCE: Final = 8
"""Limit of the retry interval, in retransmission times; the interval grows with each retry."""


class StateReader:
    """The receiver's half: reads one state at a time, page by page."""

    def __init__(self) -> None:
        self.source: NodeId = ""
        """Source of the state that is being read; empty when none is."""
        self.is_reading = False
        """Whether to go on reading: no master that is heard holds the next entry."""
        self.lsn: Lsn = 0
        """Position of the state that is being read; 0 before its first page."""
        self.ids = 0
        """Number of its transactions that are known here by now."""
        self._cursor = b""
        self._page: State | None = None
        """The page that came in this turn, to be written with it."""
        self._asked_ms: int | None = None
        self._tries = 0
        self._moved_ms: int | None = None
        """When the last page came, or this source was asked first."""
        self._silent: set[NodeId] = set()
        """Sources that were given up, until none is left."""
        self._since_ms: int | None = None
        """Time from which masters that are heard were asked for the next entry."""
        self._lineage = 0

    def _begin(self, source: NodeId) -> None:
        self.source, self.lsn, self.ids, self._cursor = source, 0, 0, b""
        self._page, self._asked_ms, self._tries, self._moved_ms = None, None, 0, None

    def _keep_up(self, sync: SyncState) -> None:
        """Read no further after the queue went back or a lineage began: the ids of the pages so far are void (`Rewound`)."""
        if sync.lineage != self._lineage:
            self._lineage = sync.lineage
            self._begin("")

    def on_state(self, sender: NodeId, state: State, lsn: Lsn) -> bool:
        """Take in a page for a queue that ends at ``lsn``; return whether it was requested."""
        if sender != self.source or self._page is not None or state.lsn <= lsn:
            return False
        is_next = (state.lsn, state.cursor) == (self.lsn, self._cursor)
        is_anew = state.lsn != self.lsn and not state.cursor
        if not (is_next or is_anew) or max([0, *(at for _, at in state.ids)]) > state.lsn:
            return False
        if is_anew:
            self.ids = 0
        self.lsn, self._page = state.lsn, state
        return True

    def take(self, sync: SyncState, result: RoundResult) -> bool:
        """Write the page that came; after the last one the queue goes on after its position. Return whether a page came."""
        self._keep_up(sync)
        page, self._page = self._page, None
        if page is None or page.lsn <= sync.lsn:
            return False
        self._asked_ms, self._tries, self._moved_ms = None, 0, None
        if page.ids:
            self.ids += len(page.ids)
            result.records.append(IdsTaken(page.ids, page.rejections))
        self._cursor = page.next_cursor
        if not page.next_cursor:
            take_state(sync, page, result)
            self._begin("")
            self._silent = set()
        return True

    # ---- whether to read, and from whom

    def look(self, sync: SyncState, mono_ms: int) -> None:
        """Begin, go on or pause, by the answers of the sources of the tail; have another one asked for the tail first."""
        self._keep_up(sync)
        tail, self.is_reading = sync.tail, False
        if sync.lsn >= tail.target or not tail.kept_from:
            self._since_ms = None
            return
        if self.lsn and self.lsn <= sync.lsn:
            self._begin("")
        ahead = self._ahead(sync, mono_ms)
        unasked = [node for node in ahead if node not in tail.refused]
        self._since_ms = mono_ms if self._since_ms is None else self._since_ms
        # A master that is heard answers soon; one that does not must not keep this master away for ever.
        if unasked and mono_ms - self._since_ms < sync.config.lag_ms:
            tail.ask(unasked)
            return
        sources = [node for node in ahead if node in tail.refused]
        # An answer may take longer than the time between two requests, but not longer than a member can be silent.
        if self._moved_ms is not None and mono_ms - self._moved_ms >= sync.config.lag_ms:
            self._silent.add(self.source)
            self._moved_ms = mono_ms
        if not {*sources}.difference(self._silent):
            self._silent = set()
        able = [node for node in sources if node not in self._silent]
        if self.source not in able and able:
            self._begin(able[0])
        self.is_reading = bool(self.source)

    @staticmethod
    def _ahead(sync: SyncState, mono_ms: int) -> list[NodeId]:
        """Return masters that are heard and have more of the queue."""
        peers = sync.peers
        others = [*peers.peers, *peers.outside]
        ahead = [node for node in others if node not in peers.impostors and peers.lsn_of(node) > sync.lsn]
        return peers.heard_of(ahead, mono_ms)

    def messages(self, mono_ms: int, again_ms: int) -> list[Outgoing]:
        """Return the requests that are due."""
        due_ms = self.due_ms(again_ms)
        if not self.is_reading or (due_ms is not None and mono_ms < due_ms):
            return []
        self._asked_ms, self._tries = mono_ms, self._tries + 1
        self._moved_ms = mono_ms if self._moved_ms is None else self._moved_ms
        return [Outgoing(self.source, StateWanted(self.lsn, self._cursor))]

    def due_ms(self, again_ms: int) -> int | None:
        """Return when to ask again; None when nothing is read."""
        if not self.is_reading or self._asked_ms is None:
            return None
        return self._asked_ms + again_ms * min(MOST_PATIENCE, self._tries)


def take_state(sync: SyncState, page: State, result: RoundResult) -> None:
    """Continue after a state, with its last page: transactions that were accepted here and that it knows are no longer pending."""
    taken = StateTaken(page.lsn, page.last, page.fingerprint, page.items)
    known = known_among(sync.pending, dict(page.ids), sync.history, page.lsn)
    sync.pending.difference_update(known)
    sync.parked = deque(txid for txid in sync.parked if txid not in known)
    sync.lsn, sync.last_entry = page.lsn, page.last
    sync.clock.saw(page.last[0])
    sync.tail.begin_anew()
    sync.bodies.forget_names()
    result.records.append(taken)
    result.state, result.known = taken, known


# ---- the source


def state_for(sync: SyncState, wanted: StateWanted) -> State | None:
    """Return the wanted page, or the first one of another position when that is gone; None when there is no state to give."""
    history, executed = sync.history, sync.content()[0]
    lsn, cursor = wanted.lsn, wanted.cursor
    last = history.entry_at(lsn) if lsn and lsn <= executed else None
    if last is None or history.fingerprint_at(lsn) == UNKNOWN:
        lsn, cursor = _position(sync, executed), b""
        last = history.entry_at(lsn) if lsn else None
    fingerprint = history.fingerprint_at(lsn)
    if last is None or fingerprint == UNKNOWN:
        return None
    page = _page(history, cursor, lsn)
    return State(lsn, cursor, last, fingerprint, history.items_at(lsn), page.ids, page.rejections, page.next_cursor)


def _position(sync: SyncState, executed: Lsn) -> Lsn:
    """Return the middle of the held and executed LSNs; the end of the queue when none is held; 0 when not all of it is executed."""
    history = sync.history
    first = max(history.first_lsn(), history.results_from() - 1)
    if first <= executed:
        return (first + executed) // 2
    return sync.lsn if sync.lsn == executed else 0


def _page(history: History, cursor: bytes, lsn: Lsn) -> Remembered:
    limit = PAGE_IDS
    while True:
        page = history.remembered(cursor, lsn, limit)
        size = sum(len(txid) + 12 for txid, _ in page.ids) + sum(4 * len(why) + 12 for _, why in page.rejections)
        if size <= PAGE_BYTES or limit == 1:
            return page
        limit = max(1, limit // 4)


def known_among(txids: set[TxId], page: dict[TxId, Lsn], history: History, lsn: Lsn) -> dict[TxId, Lsn]:
    """Return the LSNs of those of these transactions that are synchronised up to an LSN, by this page and by the journal."""
    known = history.known(sorted(txids)) | {txid: page[txid] for txid in sorted(txids & page.keys())}
    floor = max([history.ids_from(lsn), *(forgotten_below(txid) for txid in page if is_forgetting(txid))])
    return {txid: at for txid, at in known.items() if floor <= at <= lsn}
