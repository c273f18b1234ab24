"""Steps that tests of the role share: one process called b1 of a master m1 with another backup b2, and what others say to it."""

from __future__ import annotations

from brokerha.model.ids import Instant
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Candidate, Vote
from brokerha.replication.role.config import RoleChange, RoleConfig, RoleReady
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState

NAMES = ("m1", "b1", "b2")
LAST = (10, 100)
AFTER_MS = 3000


def at(milliseconds: int) -> Instant:
    return Instant(milliseconds, 0)


def a_role(
    process: str = "b1",
    *,
    processes: tuple[str, ...] = NAMES,
    sync_n: int = 1,
    promised: int = 10,
    last: tuple[int, int] = LAST,
    is_automatic: bool = True,
) -> Role:
    config = RoleConfig(process, processes[0], processes, sync_n, AFTER_MS, is_automatic)
    return Role(config, "journal", promised, last, at(0))


def pass_time(role: Role, until_ms: int, since_ms: int = 0, step_ms: int = 100) -> RoleReady:
    """Wake a role often; returns the first thing that it wants."""
    for milliseconds in range(since_ms, until_ms + 1, step_ms):
        if ready := role.take(at(milliseconds)):
            return ready
    return RoleReady()


def said_meanwhile(role: Role, until_ms: int, since_ms: int = 0, step_ms: int = 100) -> list[Outgoing]:
    """What a role that is woken often says to the others; what it asks of the broker is not among it."""
    return [each for ms in range(since_ms, until_ms + 1, step_ms) for each in role.take(at(ms)).messages]


def candidate(view: int = 22, last: tuple[int, int] = LAST, journal: str = "journal", *, by_hand: bool = False) -> Candidate:
    return Candidate(view, journal, last, by_hand)


def state_of(role: Role) -> RoleState:
    """What it is now; a function, so that a type checker does not take an earlier answer for the present one."""
    return role.state


def vote_of(ready: RoleReady) -> Vote:
    (out,) = ready.messages
    assert isinstance(out.message, Vote)
    return out.message


def granted(view: int, sender_last: tuple[int, int] = LAST) -> Vote:
    return Vote(view, is_granted=True, promised=view, last=sender_last)


def refused(view: int, promised: int = 10, last: tuple[int, int] = LAST, reason: str = "no") -> Vote:
    return Vote(view, is_granted=False, promised=promised, last=last, reason=reason)


def elected(process: str = "b1") -> Role:
    """A role that became primary of view 21 at 5000 ms, with the vote of b2."""
    role = a_role(process)
    pass_time(role, 5000)
    role.on_vote("b2", granted(21), at(5000))
    assert role.take(at(5000)).change == RoleChange(RoleState.PRIMARY, 21, "primary of view 21: elected by b1, b2")
    return role
