"""A primary's knowledge of each backup: its progress, its obstacles, whether it is ready (replication 1 to 4).

    joining    not heard, or its journal is not the beginning of ours: it loads, or requests missing records
    catch-up   it is fed; its guard is not reached, or a transaction that was closed without it is not settled
    paused     an operator paused it: it tells its position, and gets only heartbeats
    ready      it has all records from before it joined, and gets the later ones; it can take part in transactions

**Guard**: number of the last record when it began to be fed. **Tracker**: a transaction that was open or prepared then. It is
settled when the backup takes part in it, has confirmed the record that prepared it, or when it was rolled back.

Invariant: the confirmed number never moves backwards as long as its journal has our name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from brokerha.following.leader import Followed
from brokerha.following.machine import FOLLOWING, State
from brokerha.model.ids import NodeId, TxId
from brokerha.model.wire.process_messages import Confirmed

JOINING = "joining"
CATCH_UP = "catch-up"
READY = "ready"
PAUSED = "paused"
"""What a paused backup reports in the place of a state of its follower machine."""


@dataclass(frozen=True, slots=True)
class BackupRow:
    """One backup in the status."""

    node: NodeId
    state: str
    """``joining``, ``catch-up``, ``ready`` or ``paused``."""
    reason: str
    """Why it is not ready; empty when it is."""
    confirmed: int
    guard: int
    lag_records: int
    trackers: int
    """Number of transactions that it must get before it is ready."""
    free_bytes: int


@dataclass(slots=True)
class BackupFeed(Followed):
    """One backup. Numbers are those of the journal's records; a loaded snapshot may end below its former position."""

    guard: int = 0
    """For a backup that was never heard: the last record when this primary began."""
    trackers: dict[TxId, int | None] = field(default_factory=dict)
    """Number of the record that prepared it; None as long as it is open."""
    heard: Confirmed | None = None
    heard_ms: int | None = None
    is_alive: bool = False
    is_fed: bool = False
    """Whether its journal is the beginning of ours, so that it gets the later records."""
    is_ready: bool = False
    trouble: str = ""
    """Why it is not fed."""
    paused: str = ""
    """Why it gets no new records and has to request missing ones; empty while it is not paused."""
    load_from: int | None = None
    """Last number when its load began: its snapshot ends there or later; None when it loads none."""
    foreign_words: int = 0
    """Number of messages in a row for another journal."""
    confirmed: int = 0
    """Highest number that it ever confirmed in this view."""
    sent_ms: int | None = None
    must_greet: bool = True

    def on_heard(self, confirmed: Confirmed, last_number: int, mono_ms: int) -> None:
        """Take in any message of it, with the present end of our journal."""
        self.heard, self.heard_ms, self.is_alive = confirmed, mono_ms, True
        if confirmed.follows == State.LOAD and self.load_from is None:
            self.load_from = last_number
        elif confirmed.follows in (State.IDLE, PAUSED):
            self.load_from = None

    @property
    def needs_from(self) -> int | None:
        """Return the lowest number that it still needs of our journal; None when that is not known."""
        if self.is_fed:
            return self.applied + 1
        return self.load_from + 1 if self.load_from is not None and self.is_alive else None

    def join(self, number: int, last_number: int, trackers: dict[TxId, int | None], mono_ms: int) -> None:
        """Begin to feed it live; it has all records up to ``number``."""
        self.is_fed, self.trouble, self.paused = True, "", ""
        self.guard, self.trackers = last_number, trackers
        self.moved_ms, self.load_from = mono_ms, None
        self.stand(number)

    def part(self, reason: str) -> None:
        """Stop feeding it; it has to join anew."""
        self.is_fed = self.is_ready = False
        self.trouble = reason
        self.paused = ""
        self.rewind(self.applied)

    def forget(self) -> None:
        """Forget its confirmations: it has another journal."""
        self.confirmed = 0
        self.stand(0)

    def on_number(self, number: int, mono_ms: int) -> None:
        """Note that it has all records up to here."""
        self.confirmed = max(self.confirmed, number)
        if self.confirm(number, mono_ms):
            self.paused = ""
        self.settle(self.applied)
        self.trackers = {txid: at for txid, at in self.trackers.items() if at is None or at > self.applied}

    def drop_trackers(self, txids: Iterable[TxId]) -> None:
        """Drop trackers of transactions that were rolled back before they were prepared."""
        for txid in txids:
            self.trackers.pop(txid, None)

    def take_part(self) -> bool:
        """Settle the open transactions, if nothing else keeps it from being ready; return whether there were any."""
        can = bool(self.trackers) and self._has_records and all(at is None for at in self.trackers.values())
        if can:
            self.trackers = {}
        return can

    @property
    def _has_records(self) -> bool:
        """Tell whether it is fed, and has all records from before it joined."""
        is_fed = self.is_fed and self.is_alive and not self.paused
        return is_fed and self.heard is not None and self.heard.follows == State.BASIC and self.applied >= self.guard

    def judge(self) -> bool:
        """Decide whether it is ready; return whether that changed."""
        before = self.is_ready
        is_following = self.heard is not None and self.heard.follows in FOLLOWING
        if not (self.is_fed and self.is_alive and is_following) or self.paused:
            self.is_ready = False
        elif self._has_records and not self.trackers:
            self.is_ready = True
        return self.is_ready is not before

    def word(self) -> tuple[str, str]:
        """Return its state and the reason."""
        heard = self.heard
        if heard is None:
            return JOINING, "not heard yet"
        if not self.is_alive:
            return JOINING, "not heard any more"
        if heard.follows == PAUSED:
            return PAUSED, heard.reason
        if heard.follows not in FOLLOWING:
            said = heard.reason or self.trouble
            return JOINING, f"it is in {heard.follows}" + (f": {said}" if said else "")
        if not self.is_fed:
            return JOINING, self.trouble or heard.reason
        if self.paused:
            return CATCH_UP, f"{self.paused}; it says: {heard.reason}" if heard.reason else self.paused
        if self.is_ready:
            return READY, ""
        if self.applied < self.guard:
            return CATCH_UP, f"{self.guard - self.applied} records are lacking up to its guard {self.guard}"
        if self.trackers:
            return (
                CATCH_UP,
                f"transactions that were open when it joined, and that it has not got: {', '.join(sorted(self.trackers)[:3])}",
            )
        return CATCH_UP, heard.reason or f"it is in {heard.follows}"
