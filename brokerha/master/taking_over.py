"""What a master does when it has taken over the state of another one (R16): its site begins anew after it.

    in that turn              results known so far are void, what was to become of them is given up; the record is written
    once it is durable        who waits for what is known now is answered; copies that are below it are condemned, and healed

The site's own copies all lack entries that the log no longer has, so no copy of it can heal another one: they load from the workers of other sites.

Must never: answer anybody, or judge a copy, by a state that is not durable yet.
"""

from __future__ import annotations

from typing import Protocol

from brokerha.master.admission import Waiters
from brokerha.master.transacting import Transacting
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import History
from brokerha.replication.site.config import Standing, Trust
from brokerha.replication.site.site import Site
from brokerha.sync.round import RoundResult


class Overtaken(Protocol):
    """What a master has that is told."""

    history: History
    site: Site
    transacting: Transacting
    waiters: Waiters

    def go_on_after(self, lsn: Lsn) -> None:
        """Results after ``lsn`` are void."""


class TakingOver:
    """Follows the rounds of one master."""

    def __init__(self) -> None:
        self._round: RoundResult | None = None
        """That brought a state which is not known to be durable yet."""

    def on_round(self, core: Overtaken, result: RoundResult) -> None:
        """A round is about to be written."""
        if result.state is not None:
            self._round = result
            site = core.site
            site.adopted = site.overruled = site.filling = None
            site.disagreement = ""
            core.go_on_after(result.state.lsn)

    def settle(self, core: Overtaken, now: Instant) -> None:
        """What was returned before is durable."""
        result, self._round = self._round, None
        if result is None or result.state is None:
            return
        lsn = result.state.lsn
        core.waiters.on_state(lsn, result.known, core.history.rejection)
        core.transacting.on_state(lsn, result.known)
        _condemn_below(core.site, lsn, now.mono_ms)


def _condemn_below(site: Site, lsn: Lsn, mono_ms: int) -> None:
    """None of these copies can follow any more, and none of them may heal another one."""
    behind = [worker for worker in site.workers.values() if worker.progress is not None and worker.applied < lsn]
    for worker in behind:
        worker.condemned = worker.condemned or f"it is at LSN {worker.applied}, the log begins after {lsn}"
        worker.standing, worker.reason, worker.trust = Standing.OUT_OF_SYNC, worker.condemned, Trust.NONE
    for worker in behind:
        site.judge(worker, mono_ms)
