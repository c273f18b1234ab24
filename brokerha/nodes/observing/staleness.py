"""Age of the data at a master's site: the time since it was known to be up to date. Reads and the status report it beside the LSN.

While the master agrees with the others, its site is up to date, except for transactions under way. Once it is apart
(master/state_words.py), the others can go on without it; then the age counts from the last moment at which it had news of all
members. If a master has not agreed since its start, the age counts from its last transaction: it has everything before that.

`note` is called by the loop's thread, after turns and before an age is reported; `of` from any thread. It changes nothing.
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
    """Possible age of the data at a site."""

    apart: str
    """State word of the master; empty while it agrees with the others."""
    stale_ms: int | None
    """Time since it was known to be up to date, in ms; 0 while it agrees, None when it never was."""


UP_TO_DATE = Age("", 0)


class Staleness:
    """The time when a master was last known to be up to date."""

    def __init__(self) -> None:
        self.found: State | None = None
        """State word and reason, as of the last turn, while the master is apart."""
        self._since_ms: int | None = None
        self._has_agreed = False

    def note(self, core: MasterCore, now: Instant) -> None:
        """Look at the core after a turn."""
        self.found = apart_state(core.sync, now.mono_ms)
        if self.found is None:
            self._since_ms, self._has_agreed = news_ms(core.sync, now.mono_ms), True
        elif not self._has_agreed and (timestamp := core.sync.last()[0]):
            # Timestamps of other masters can be ahead of the clock here.
            self._since_ms = now.mono_ms - max(0, now.wall_us - timestamp) // 1000

    def of(self, mono_ms: int) -> Age:
        """Return the age at this moment."""
        found, since_ms = self.found, self._since_ms
        if found is None:
            return UP_TO_DATE
        return Age(found[0], None if since_ms is None else max(0, mono_ms - since_ms))


def with_age(future: Future[ReadOutcome], age: Age) -> Future[ReadOutcome]:
    """Return a future to complete in place of ``future``, so that its result has the age."""
    if not age.apart:
        return future
    inner: Future[ReadOutcome] = Future()

    def pass_on(done: Future[ReadOutcome]) -> None:
        if error := done.exception():
            if isinstance(error, (NotFound, UnknownRepository)):
                # "Not found" is an answer as well, and as old.
                error.apart, error.stale_ms = age
            complete(future, error)
        else:
            complete(future, done.result()._replace(apart=age.apart, stale_ms=age.stale_ms))

    inner.add_done_callback(pass_on)
    return inner
