"""Since when what a master's site holds is not known to be up to date: what a read, and the status, say beside the LSN.

While the master agrees with the others its site is up to date, but for what is under way. Once it is apart (master/state_words.py), the others
may go on without it; then the age counts from the moment at which all members had been heard of last. Of a master that has not agreed
since it was started only the timestamp of its last transaction is known: everything before that is there.

`note` is called after turns, and before somebody is told, by the loop's thread; `of` from any thread. It reads the core and changes nothing.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

from brokerha.master.belonging import State
from brokerha.master.core import MasterCore
from brokerha.master.state_words import apart_state, news_ms
from brokerha.model.errors import NotFound, UnknownRepository
from brokerha.model.ids import Instant
from brokerha.nodes.loop import complete
from brokerha.ports.front import ReadOutcome


class Age(NamedTuple):
    """How old what a site shows may be."""

    apart: str
    """State word of the master; empty while it agrees with the others."""
    stale_ms: int | None
    """For how long it has not been known to be up to date; 0 while it agrees, None when it never was."""


UP_TO_DATE = Age("", 0)


class Staleness:
    """When a master was known to be up to date last."""

    def __init__(self) -> None:
        self.found: State | None = None
        """State word and reason, as of the last turn, while the master is apart."""
        self._since_ms: int | None = None
        self._has_agreed = False

    def note(self, core: MasterCore, now: Instant) -> None:
        """Look at the core as it is after a turn."""
        self.found = apart_state(core.sync, now.mono_ms)
        if self.found is None:
            self._since_ms, self._has_agreed = news_ms(core.sync, now.mono_ms), True
        elif not self._has_agreed and (timestamp := core.sync.last()[0]):
            # Timestamps of others may be ahead of the clock here.
            self._since_ms = now.mono_ms - max(0, now.wall_us - timestamp) // 1000

    def of(self, mono_ms: int) -> Age:
        """What is known now."""
        found, since_ms = self.found, self._since_ms
        if found is None:
            return UP_TO_DATE
        return Age(found[0], None if since_ms is None else max(0, mono_ms - since_ms))


def with_age(future: Future[ReadOutcome], age: Age) -> Future[ReadOutcome]:
    """What is to be completed in place of ``future``, so that its result says how old it may be."""
    if not age.apart:
        return future
    inner: Future[ReadOutcome] = Future()

    def pass_on(done: Future[ReadOutcome]) -> None:
        if error := done.exception():
            if isinstance(error, (NotFound, UnknownRepository)):
                # That there is nothing is an answer as well, and as old.
                error.apart, error.stale_ms = age
            complete(future, error)
        else:
            complete(future, done.result()._replace(apart=age.apart, stale_ms=age.stale_ms))

    inner.add_done_callback(pass_on)
    return inner
