"""Catching up: a part of the synchronised queue whose order another master knows, taken over entry by entry.

    Missing       entries in a given order; those at the head continue when their bodies are here
    TailReader    brings the own queue up to an LSN: requests entries (Tail) of a master that is ahead; they come with their bodies.
                  It fetches the bodies that did not come

Both ask one holder at a time, and go to the next when no answer comes. Requests and answers are bounded.

Must never: let an entry continue before its body, and all entries before it, are durable here or among the same records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.wire.epoch_messages import Tail, TailWanted
from brokerha.model.wire.messages import Fetch, Outgoing

FETCH_LIMIT = 500
"""Bodies requested in one message."""
ASKED_LIMIT = 4_000
"""Bodies requested and not here. The limit lets a distant reader catch up beside masters that go on writing."""
TAIL_LIMIT = 8_000
"""Entries in one answer, if their bodies fit into it."""

MOST_DOUBLINGS = 2
"""Limit of doublings of the retry interval, which grows because unheard requests may queue up and all be answered later."""


def patience_ms(again_ms: int, tries: int) -> int:
    """Return how long to wait for an answer after so many requests in vain."""
    return again_ms << min(MOST_DOUBLINGS, tries)


Has = Callable[[NodeId, str], bool]
"""Tells whether the body of a transaction, by origin and id, is here."""


class Missing:
    """Entries in a given order that wait for their bodies."""

    def __init__(self, entries: Iterable[Ordered] = ()) -> None:
        self._entries: deque[Ordered] = deque(entries)
        self._asked = 0
        """Number of entries at the head whose bodies were requested."""
        self._since_ms: int | None = None
        """When a body last came, or was requested anew; None before the first look."""
        self._tries = 0

    @property
    def is_stalled(self) -> bool:
        """Tell whether the body at the head was requested before, and did not come."""
        return self._tries > 0

    def __len__(self) -> int:
        return len(self._entries)

    def extend(self, entries: Iterable[Ordered], *, are_under_way: bool = False) -> None:
        """Append entries; bodies that are under way are not requested as long as others come."""
        before = len(self._entries)
        self._entries.extend(entries)
        if are_under_way and self._asked >= before:
            self._asked = len(self._entries)

    def take(self, has: Has) -> list[Ordered]:
        """Remove and return the entries at the head whose bodies are here."""
        taken: list[Ordered] = []
        while self._entries and has(self._entries[0][2], self._entries[0][1]):
            taken.append(self._entries.popleft())
        if taken:
            self._asked = max(0, self._asked - len(taken))
            self._since_ms, self._tries = None, 0
        return taken

    def fetch(self, has: Has, holders: Sequence[NodeId], mono_ms: int, again_ms: int) -> list[Outgoing]:
        """Return requests for missing bodies, several ahead; when none comes, request all again, from the next holder."""
        if not self._entries or not holders:
            return []
        if self._since_ms is None:
            self._since_ms = mono_ms
        elif mono_ms - self._since_ms >= patience_ms(again_ms, self._tries):
            self._asked, self._since_ms, self._tries = 0, mono_ms, self._tries + 1
        requests = []
        holder = holders[self._tries % len(holders)]
        # One request is enough to find out whether the holder answers.
        limit = FETCH_LIMIT if self._tries else ASKED_LIMIT
        while self._asked <= limit - FETCH_LIMIT and self._asked < len(self._entries):
            part = list(islice(self._entries, self._asked, self._asked + FETCH_LIMIT))
            self._asked += len(part)
            wanted = tuple((origin, txid) for _, txid, origin in part if not has(origin, txid))
            if wanted:
                requests.append(Outgoing(holder, Fetch(wanted)))
        return requests

    def due_ms(self, again_ms: int) -> int | None:
        """Return when to ask again; None when nothing is missing or requested."""
        if not self._entries or self._since_ms is None:
            return None
        return self._since_ms + patience_ms(again_ms, self._tries)


class TailReader:
    """Brings the own synchronised queue up to `target`."""

    def __init__(self) -> None:
        self.target: Lsn = 0
        self.txid: TxId = ""
        """Id of the transaction at the target; empty when it is not known."""
        self.sources: tuple[NodeId, ...] = ()
        """Masters that have the queue up to there, by their own rows."""
        self.kept_from: Lsn = 0
        """Above 0: the source that was asked last no longer holds the next entry, only those from this LSN on."""
        self.refused: dict[NodeId, Lsn] = {}
        """First LSN that each source holds, of sources that lack the next entry; cleared when entries come."""
        self._missing = Missing()
        self._asked_ms: int | None = None
        self._tries = 0
        self._gets_on = False
        """Whether bodies came since the last request: the requested entries may be behind them on the way."""

    def aim(self, target: Lsn, sources: Iterable[NodeId], txid: TxId = "") -> None:
        """Read up to this LSN from now on, and to this transaction there."""
        self.target, self.sources, self.txid = target, tuple(sources), txid

    def ask(self, sources: Iterable[NodeId]) -> None:
        """Ask other sources for the same: those that have not refused."""
        if self.sources != tuple(sources):
            self.sources, self._asked_ms = tuple(sources), None

    def take(self, lsn: Lsn, has: Has) -> list[Ordered]:
        """Return the entries after ``lsn``, the end of the own queue, that are complete here."""
        if lsn >= self.target:
            self.begin_anew()
            return []
        taken = self._missing.take(has)
        self._gets_on |= bool(taken)
        return taken

    def begin_anew(self) -> None:
        """Forget all answers: the own queue now ends elsewhere."""
        self._missing, self.kept_from, self.refused, self._asked_ms = Missing(), 0, {}, None

    def on_tail(self, lsn: Lsn, tail: Tail, sender: NodeId = "") -> None:
        """Take in an answer, without known entries and those after a gap.

        A source may have gone back since it was named: a tail with another transaction at the target is of another queue.
        """
        place = self.target - tail.first_lsn
        if self.txid and 0 <= place < len(tail.entries) and tail.entries[place][1] != self.txid:
            return
        following = lsn + len(self._missing) + 1
        skip = following - tail.first_lsn
        if not tail.entries and tail.kept_from > tail.first_lsn and tail.first_lsn in {lsn + 1, following}:
            self.kept_from = self.refused[sender] = tail.kept_from
            if tail.first_lsn == lsn + 1:
                self._missing = Missing()  # Their order was known, and their bodies are gone since.
        elif 0 <= skip < len(tail.entries):
            room = max(0, self.target - following + 1)
            self._missing.extend(tail.entries[skip : skip + room], are_under_way=True)
            self.kept_from, self.refused, self._asked_ms, self._tries = 0, {}, None, 0

    def messages(self, lsn: Lsn, has: Has, mono_ms: int, again_ms: int) -> list[Outgoing]:
        """Return the requests that are due."""
        if lsn >= self.target or not self.sources:
            return []
        first = lsn + len(self._missing) + 1
        messages = self._missing.fetch(has, self.sources, mono_ms, again_ms)
        if messages and self._missing.is_stalled:
            # Trimmed bodies will not come; the tail says whether they are held.
            messages.append(Outgoing(messages[0].to, TailWanted(lsn + 1, lsn + 1)))
        if self._gets_on and self._asked_ms is not None:
            self._asked_ms = mono_ms
        self._gets_on = False
        is_due = self._asked_ms is None or mono_ms - self._asked_ms >= patience_ms(again_ms, self._tries - 1)
        if first <= self.target and len(self._missing) < TAIL_LIMIT and is_due:
            source = self.sources[self._tries % len(self.sources)]
            self._asked_ms, self._tries = mono_ms, self._tries + 1
            messages.append(Outgoing(source, TailWanted(first, self.target)))
        return messages

    def due_ms(self, lsn: Lsn, again_ms: int) -> int | None:
        """Return when to ask again; None when nothing is wanted."""
        if lsn >= self.target or not self.sources:
            return None
        asked = None if self._asked_ms is None else self._asked_ms + patience_ms(again_ms, self._tries - 1)
        due = [at for at in (self._missing.due_ms(again_ms), asked) if at is not None]
        return min(due, default=None)
