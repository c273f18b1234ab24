"""Resting: orders of an operator to a backup: pause, coin, continue (replication, section 9).

    pause ──> the order is durable ──> the role is IDLE, the follower stands still; heartbeats, votes and status go on
    coin ───> names the primary that is heard now, with its view; durable too
    continue ─> refused unless the coin names the present primary ──> the follower obeys it, from its next message on

A rest outlives the process: its holder makes `Rest` durable before any message that reveals it, and passes it on at the next start.
Promotion ends it as well: the process then continues as primary.

Must never: follow, confirm a new record, or stand for election while it is on; continue under a primary that no coin names.
"""

from __future__ import annotations

from brokerha.following.machine import State
from brokerha.model.ids import Instant, NodeId
from brokerha.model.records import Rest
from brokerha.replication.journal.follower import JournalFollower
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState

PAUSE, COIN, CONTINUE = "pause", "coin", "continue"


class Resting:
    """The rest of one standby process."""

    def __init__(self, role: Role, follower: JournalFollower, rest: Rest) -> None:
        """Take ``rest``, which the disk remembers."""
        self.rest = rest
        self._role = role
        self._follower = follower
        self._durable = rest
        if rest.is_on:
            self._stand_still()

    # ---- orders; each returns why it is refused, empty when it is carried out or changes nothing

    def order(self, command: str, now: Instant, *, is_forced: bool = False) -> str:
        """Take one of the three."""
        self._look(now)
        if command == PAUSE:
            return self._pause(is_forced=is_forced)
        return self._coin(now) if command == COIN else self._continue(now)

    def _pause(self, *, is_forced: bool) -> str:
        config = self._role.config
        if not self.rest.is_on:
            if self._follower.state is State.LOAD:
                return f"{config.process} takes a snapshot of its primary: pause it when that is over"
            if len(config.others) - 1 < config.sync_n and not is_forced:
                return (
                    f"sync-n of {config.master} is {config.sync_n}: without {config.process} no write is acknowledged; "
                    "pause it all the same with force"
                )
            self.rest = Rest(is_on=True)
            self._stand_still()
        return ""

    def _coin(self, now: Instant) -> str:
        process, primary = self._role.config.process, self._role.live_primary(now)
        if not self.rest.is_on:
            return f"{process} is not paused: only a paused process is coined"
        if not primary:
            return _unheard(process)
        self.rest = Rest(True, primary, self._role.view)
        self._stand_still()
        return ""

    def _continue(self, now: Instant) -> str:
        process, primary, view = self._role.config.process, self._role.live_primary(now), self._role.view
        rest = self.rest
        if not rest.is_on:
            return ""
        if not rest.primary:
            return f"{process} was not coined since it was paused: first brokerha node coin {process}"
        if not primary:
            return _unheard(process)
        if (rest.primary, rest.view) != (primary, view):
            return (
                f"{process} was coined on {rest.primary} in view {rest.view}, and {primary} is primary in view {view} now: "
                f"first brokerha node coin {process}"
            )
        self._role.resume(now)
        self._go_on(now)
        return ""

    # ---- output

    def take(self, now: Instant) -> Rest | None:
        """Return the rest to make durable before all other actions; None when it has not changed."""
        self._look(now)
        if self.rest == self._durable:
            return None
        self._durable = self.rest
        return self.rest

    @property
    def reason(self) -> str:
        """Return its position and its coin, for the status."""
        view, number = self._follower.last
        coined = f"coined on {self.rest.primary} in view {self.rest.view}" if self.rest.primary else "not coined"
        return f"by an operator, at record {number} of view {view}; {coined}"

    def _look(self, now: Instant) -> None:
        """End the rest after a promotion."""
        if self.rest.is_on and self._role.state is not RoleState.IDLE:
            self._go_on(now)

    def _stand_still(self) -> None:
        self._role.pause(self.reason)
        self._follower.rest(self.reason)

    def _go_on(self, now: Instant) -> None:
        self.rest = Rest()
        self._follower.go_on(now)


def _unheard(process: NodeId) -> str:
    return f"{process} hears no primary at present: wait until it does"
