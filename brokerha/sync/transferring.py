"""State transfer: what a master takes over when nobody holds any more what comes next in its queue (R16).

    receiver                                       source
    TailWanted 101 ->            <- Tail: nothing, it begins at 5,000 here       so say all that are heard and are ahead
    StateWanted 0 ->             <- State 7,000: the entry there, its fingerprint, a page of ids
      journal: IdsTaken
    StateWanted 7,000, cursor -> <- State 7,000: the last page
      journal: IdsTaken, StateTaken                the queue ends at LSN 7,000 now; the tail goes on after it

A source says all of it from its journal and remembers nothing of whom it answers. The position is one that it has executed and
whose entry it holds, in the middle of what it holds: so its log may be trimmed for a while and still have what comes after. When
it is trimmed past the position all the same, or another source is asked, it begins anew.

Pages are durable as they come: the receiver needs memory for one. Until the last one is there nothing has changed but that more
transactions are known, all of which are synchronised; so a crash at any time costs the pages that were read and nothing else.

Must never: ask while what comes next could still be read from anybody who is heard; take a state that is not ahead of the own queue.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.records import History, IdsTaken, Remembered, StateTaken
from brokerha.model.wire.epoch_messages import State, StateWanted
from brokerha.model.wire.messages import Outgoing
from brokerha.sync.round import RoundResult
from brokerha.sync.state import SyncState

PAGE_IDS: Final = 2_000
"""Transactions that one page looks at; measured at a journal on a disk: about 20 ms."""
PAGE_BYTES: Final = 1_000_000
"""About how many bytes a page has at most."""
MOST_PATIENCE: Final = 8
"""A question is asked again ever less often, at last after so many times the retransmission."""


class StateReader:
    """The receiver's half: reads one state at a time, page by page."""

    def __init__(self) -> None:
        self.source: NodeId = ""
        """Who gives the state that is being read; empty when none is."""
        self.is_reading = False
        """Whether it is to go on: nobody who is heard holds what comes next."""
        self.lsn: Lsn = 0
        """Position of the state that is being read; 0 before its first page."""
        self.ids = 0
        """How many transactions of it are known here by now."""
        self._cursor = b""
        self._page: State | None = None
        """Came in this turn, and is written with it."""
        self._asked_ms: int | None = None
        self._tries = 0
        self._moved_ms: int | None = None
        """When the last page came, or this source was asked first."""
        self._silent: set[NodeId] = set()
        """Sources that were given up, until none is left."""
        self._since_ms: int | None = None
        """Since when some master that is heard has been asked whether it holds what comes next."""

    def _begin(self, source: NodeId) -> None:
        self.source, self.lsn, self.ids, self._cursor = source, 0, 0, b""
        self._page, self._asked_ms, self._tries, self._moved_ms = None, None, 0, None

    def on_state(self, sender: NodeId, state: State, lsn: Lsn) -> bool:
        """Take in a page for a queue that ends at ``lsn``; whether it is one that was asked for."""
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
        """Let the page that came be written; with the last one the queue goes on after its position. Whether one came."""
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
        """Begin, go on or pause, by what the sources of the tail have said; may have another one asked for the tail first."""
        tail, self.is_reading = sync.tail, False
        if sync.lsn >= tail.target or not tail.kept_from:
            self._since_ms = None
            return
        if self.lsn and self.lsn <= sync.lsn:
            self._begin("")
        ahead = self._ahead(sync, mono_ms)
        unasked = [node for node in ahead if node not in tail.refused]
        self._since_ms = mono_ms if self._since_ms is None else self._since_ms
        # Who is heard answers soon. One that does not must not keep this master away for ever.
        if unasked and mono_ms - self._since_ms < sync.config.lag_ms:
            tail.ask(unasked)
            return
        sources = [node for node in ahead if node in tail.refused]
        # An answer may take longer than the time between two questions, but not longer than a member may be silent.
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
        """Masters that are heard and have more of the queue."""
        peers = sync.peers
        others = [*peers.peers, *peers.outside]
        ahead = [node for node in others if node not in peers.impostors and peers.lsn_of(node) > sync.lsn]
        return peers.heard_of(ahead, mono_ms)

    def messages(self, mono_ms: int, again_ms: int) -> list[Outgoing]:
        """What to ask for now."""
        due_ms = self.due_ms(again_ms)
        if not self.is_reading or (due_ms is not None and mono_ms < due_ms):
            return []
        self._asked_ms, self._tries = mono_ms, self._tries + 1
        self._moved_ms = mono_ms if self._moved_ms is None else self._moved_ms
        return [Outgoing(self.source, StateWanted(self.lsn, self._cursor))]

    def due_ms(self, again_ms: int) -> int | None:
        """When to ask again; None when nothing is read."""
        if not self.is_reading or self._asked_ms is None:
            return None
        return self._asked_ms + again_ms * min(MOST_PATIENCE, self._tries)


def take_state(sync: SyncState, page: State, result: RoundResult) -> None:
    """Go on after a state, with its last page: what was accepted here and is known by then waits for nothing any more."""
    taken = StateTaken(page.lsn, page.last, page.fingerprint, page.items)
    known = known_among(sync.pending, dict(page.ids), sync.history, page.lsn)
    sync.pending.difference_update(known)
    sync.parked = deque(txid for txid in sync.parked if txid not in known)
    sync.lsn, sync.last_entry = page.lsn, page.last
    sync.clock.saw(page.last[0])
    sync.tail.begin_anew()
    result.records.append(taken)
    result.state, result.known = taken, known


# ---- the source


def state_for(sync: SyncState, wanted: StateWanted) -> State | None:
    """The page that is wanted, or the first one of another position when that is gone; None when there is no state to give."""
    history, executed = sync.history, sync.content()[0]
    lsn, cursor = wanted.lsn, wanted.cursor
    last = _entry(sync, lsn) if lsn and lsn <= executed else None
    if last is None or history.fingerprint_at(lsn) == UNKNOWN:
        lsn, cursor = _position(sync, executed), b""
        last = _entry(sync, lsn)
    fingerprint = history.fingerprint_at(lsn)
    if last is None or fingerprint == UNKNOWN:
        return None
    page = _page(history, cursor, lsn)
    return State(lsn, cursor, last, fingerprint, history.items_at(lsn), page.ids, page.rejections, page.next_cursor)


def _position(sync: SyncState, executed: Lsn) -> Lsn:
    """The middle of what is held and executed; the end of the queue when nothing is held; 0 when not all of it is executed."""
    history = sync.history
    first = max(history.first_lsn(), history.results_from() - 1)
    if first <= executed:
        return (first + executed) // 2
    return sync.lsn if sync.lsn == executed else 0


def _entry(sync: SyncState, lsn: Lsn) -> Ordered | None:
    """The entry at an LSN, with everything after it held here; None when that is not so."""
    found = sync.history.ordered(lsn, 1) if lsn else []
    if found:
        return found[0]
    return sync.last_entry if lsn and lsn == sync.lsn else None


def _page(history: History, cursor: bytes, lsn: Lsn) -> Remembered:
    limit = PAGE_IDS
    while True:
        page = history.remembered(cursor, lsn, limit)
        size = sum(len(txid) + 12 for txid, _ in page.ids) + sum(4 * len(why) + 12 for _, why in page.rejections)
        if size <= PAGE_BYTES or limit == 1:
            return page
        limit = max(1, limit // 4)


def known_among(txids: set[TxId], page: dict[TxId, Lsn], history: History, lsn: Lsn) -> dict[TxId, Lsn]:
    """Which of these transactions are synchronised up to an LSN, by a page that comes and by what came before; with their LSNs."""
    found = {txid: page.get(txid) or history.lsn_of(txid) for txid in sorted(txids)}
    return {txid: at for txid, at in found.items() if at is not None and at <= lsn}
