"""One test for each sentence of the replication paper about who is master, and what that one may answer.

As in test_primary_paper.py: docstrings quote a few words, and say why where this design does something else on purpose. Its
"master" is our primary, its "slave" our backup, its "declaration of a master" an election or an operator's order.
"""

from __future__ import annotations

import pytest

from brokerha.model.ids import Instant
from brokerha.model.requests import Reply
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.role.gate import Gate, GateConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import TRANSITIONS, RoleEvent, RoleState, after
from tests.simulation.group_scene import FAIL_OVER_MS, GroupScene
from tests.unit.replication.role_steps import (
    LAST,
    NAMES,
    a_role,
    at,
    candidate,
    elected,
    granted,
    pass_time,
    said_meanwhile,
    state_of,
    vote_of,
)


def a_gate(sync_n: int, timeout_ms: int = 500) -> Gate:
    return Gate(GateConfig(21, sync_n, timeout_ms, backups=("b1", "b2", "b3")))


def hold(gate: Gate, number: int, ms: int = 0) -> None:
    gate.hold(number, (), (Reply(number, f"t{number}", "accepted"),), (), Instant(ms, 0))


def begin_anew(scene: GroupScene) -> None:
    """All processes of a master end, and start again at once."""
    names = [process.node for process in scene.group.processes]
    scene.kill(*names)
    scene.start(*names)


# ---- behaviour


@pytest.mark.parametrize("sync_n", [0, 1, 2, 3])
def test_the_acknowledgement_waits_for_as_many_as_the_parameter_says(sync_n: int) -> None:
    """Basic replication [7]: "Depending on the replication mode, configured through the sync-N parameter"."""
    gate = a_gate(sync_n)
    hold(gate, 5)
    for confirmed, process in enumerate(("b1", "b2", "b3")):
        assert gate.is_through(5) == (confirmed >= sync_n)
        gate.confirm(process, 21, 5)
    assert [reply.status for reply in gate.release().replies] == ["accepted"]


def test_many_writes_wait_at_once() -> None:
    """Basic replication [7]: "the master stalls the acknowledgement for the operation": for that one, and goes on with others."""
    gate = a_gate(1)
    for number in range(1, 101):
        hold(gate, number)
    gate.confirm("b1", 21, 60)
    assert [reply.ticket for reply in gate.release().replies] == list(range(1, 61))
    assert gate.held == (0, 40)


# ---- architecture


def test_the_role_defines_the_behaviour_and_there_is_a_way_between_any_two() -> None:
    """Architecture: dispatchers "define the behavior of the master- and slave-role"; every role can become every other one."""
    reached: dict[RoleState, set[RoleState]] = {state: {state} for state in RoleState}
    for _ in RoleState:
        for (source, _event), target in TRANSITIONS.items():
            for targets in reached.values():
                if source in targets:
                    targets.add(target)
    assert all(targets == set(RoleState) for targets in reached.values())


def test_there_is_an_operation_to_stop_and_one_for_each_role() -> None:
    """Architecture: "an operation to stop the BabuDB (idle-mode) and put it into slave or master mode"."""
    role = a_role()
    role.pause("stopped")
    assert state_of(role) is RoleState.IDLE
    role.resume(at(0))
    assert state_of(role) is RoleState.STANDBY
    role.promoted_by_hand(at(0), force=True)
    assert state_of(role) is RoleState.PRIMARY


def test_the_latest_progress_can_be_had_in_every_role() -> None:
    """Architecture: "an operation to get the latest progress-state defined through a LSN is available": (view, number) of the disk."""
    role = a_role()
    for step in (lambda: None, lambda: role.pause(""), lambda: role.promoted_by_hand(at(0), force=True)):
        step()
        assert role.last == LAST
    role.moved((21, 101))
    assert role.last == (21, 101)


def test_on_startup_nobody_acts_before_a_master_is_declared() -> None:
    """Architecture: "On startup ... remains in an idle-mode and is coined on the declaration of a master".

    Here the processes declare it themselves: a process that starts stands by, which changes nothing, until it hears a primary
    or has the votes. The paper's idle mode is kept for those that were stopped.
    """
    scene = GroupScene(backups=2)
    begin_anew(scene)
    assert scene.group.acting == []
    assert {process.runner.role.state for process in scene.group.processes} == {RoleState.STANDBY}
    scene.ready()
    assert {process.runner.role.primary for process in scene.group.processes} == {scene.primary.node}


def test_only_configured_participants_can_change_a_role() -> None:
    """Master: "only allows requests from pre-configured participants or the local user application"."""
    role = elected()
    role.on_candidate("stranger", candidate(99), at(5000))
    role.on_vote("stranger", granted(99), at(5000))
    role.heard("stranger", 99, at(5000))
    assert (state_of(role), role.promised) == (RoleState.PRIMARY, 21)
    assert not role.take(at(5000))


# ---- invariants


def test_every_instance_is_master_slave_or_idle_and_says_each_change_once() -> None:
    """Invariants: all instances "can be declared to master, slave or remain in a well defined idle-mode"."""
    told: list[RoleState] = []
    role = a_role()
    for order in (lambda: role.pause("x"), lambda: role.resume(at(0)), lambda: role.promoted_by_hand(at(0), force=True)):
        order()
        told += [change.state for _ in range(3) if (change := role.take(at(0)).change) is not None]
    assert told == [RoleState.IDLE, RoleState.STANDBY, RoleState.PRIMARY]


def test_a_slave_obeys_only_one_master_at_a_time() -> None:
    """Invariants: "A slave does obey only one master at a time": the one of the highest view that it promised to."""
    scene = GroupScene(backups=3, sync_n=2)
    scene.ready()
    promised = dict.fromkeys((process.node for process in scene.group.processes), 0)
    for _ in range(3):
        scene.primary.freeze(4 * FAIL_OVER_MS * 1000)
        for _ in range(400):
            scene.run(20)
            for process in scene.group.processes:
                role = process.runner.role
                assert not role.obeys(role.promised - 1)
                assert promised[process.node] <= role.promised
                promised[process.node] = role.promised
        scene.ready()


def test_slaves_are_read_only() -> None:
    """Invariants: "Slaves are read-only": only the primary has what a write goes through; slaveCheck() is that it acts.

    The checks of the simulator see to it that nobody else writes in a view.
    """
    scene = GroupScene(backups=2)
    scene.ready()
    scene.write_many_to_group(3)
    assert [process.runner.master for process in scene.group.processes if process is not scene.primary] == [None, None]


def test_a_master_that_cannot_reach_n_slaves_rejects_and_may_go_idle_until_another_is_declared() -> None:
    """Invariants: "it immediately changes to the idle-mode and rejects any further operations until a new master is declared".

    Here only after `sync-timeout-ms`, so that a short loss costs nothing, and only where ``sync-lost`` says so; by default
    it stays readable and goes on trying.
    """
    gate = a_gate(2)
    hold(gate, 7)
    gate.confirm("b1", 21, 7)
    assert not gate.is_lost(at(499))
    assert gate.is_lost(at(500))
    assert "1 of sync-n 2 backups hold record 7; missing: b2, b3" in gate.reason(at(500))
    role = elected()
    role.pause(gate.reason(at(500)), until_declared=True)
    assert after(RoleState.IDLE, RoleEvent.STANDS) is RoleState.IDLE
    role.heard("b2", 32, at(5300))
    assert state_of(role) is RoleState.STANDBY


def test_spreading_that_fails_is_no_failure_of_the_write() -> None:
    """Master: "If that check failes the request will be marked as failed".

    Not here: the write is in the journal and may still be confirmed. Its outcome is unknown, never failed.
    """
    gate = a_gate(1)
    hold(gate, 7)
    (reply,) = gate.expire(at(500)).replies
    assert (reply.status, reply.error) == ("unknown", "OutcomeUnknown")


# ---- explanations


def test_replication_can_be_suspended_and_an_idle_instance_changes_by_orders_only() -> None:
    """Explanations: "rejects any operation except those which can change its state to master, slave, or get its on disk LSN"."""
    ways = {event for (state, event) in TRANSITIONS if state is RoleState.IDLE}
    assert ways == {RoleEvent.RESUMED, RoleEvent.FORCED, RoleEvent.DECLARED}
    role = elected()
    role.pause("suspended")
    role.take(at(5000))
    assert not pass_time(role, 60_000, since_ms=5000, step_ms=500)
    assert role.last == LAST


def test_continuing_says_as_what() -> None:
    """Explanations: "continues() ... must be parameterized with SLAVE or MASTER": `resume`, or `promoted_by_hand`."""
    for continues, state in (
        (lambda role: role.resume(at(10)), RoleState.STANDBY),
        (lambda role: role.promoted_by_hand(at(10), force=True), RoleState.PRIMARY),
    ):
        role = a_role()
        role.pause("suspended")
        continues(role)
        assert state_of(role) is state


def test_being_coined_needs_no_order_because_the_view_names_the_master() -> None:
    """Explanations: coin() "is parameterized with the i-net-address of the new master". Here the first record of a view does it,
    unless an operator has paused the backup (tests/unit/master/test_resting.py)."""
    role = a_role()
    role.heard("b2", 22, at(0))
    assert (role.primary, role.view, role.obeys(22)) == ("b2", 22, True)


# ---- faults of the earlier implementation


@pytest.mark.parametrize(("processes", "sync_n"), [(2, 1), (3, 2), (4, 3)])
def test_after_a_simultaneous_cold_start_with_all_copies_required_there_is_a_primary(processes: int, sync_n: int) -> None:
    """Earlier fault: no primary after a simultaneous cold start with all copies required."""
    scene = GroupScene(backups=processes - 1, sync_n=sync_n)
    scene.ready()
    view = scene.primary.view
    begin_anew(scene)
    scene.until(lambda: scene.group.is_up, 10 * FAIL_OVER_MS)
    scene.agree()
    assert scene.primary.view > view


@pytest.mark.parametrize("after_ms", [500, 8000])
def test_the_time_until_another_one_acts_is_a_setting(after_ms: int) -> None:
    """Earlier fault: a lease of 60 s fixed in code. Here there is no lease, and the time is `fail-over-after-ms`."""
    role = Role(RoleConfig("b1", "m1", NAMES, 1, after_ms), "journal", 10, LAST, at(0))
    role.heard("m1", 10, at(0))
    assert not said_meanwhile(role, after_ms, step_ms=50)
    assert said_meanwhile(role, 2 * after_ms, since_ms=after_ms, step_ms=50)


def test_a_vote_goes_by_the_highest_position_and_not_by_who_asks_first() -> None:
    """Earlier fault: the lease alone decided. Here the view fences, and a journal that ends earlier gets no vote."""
    role = a_role(last=(10, 101))
    role.may_vote = True
    role.on_candidate("b2", candidate(22, (10, 100)), at(0))
    ready = role.take(at(0))
    assert vote_of(type(ready)(messages=ready.messages[:1])).reason == "its journal ends with record 101 of view 10"
    other = a_role(last=(10, 101))
    other.on_candidate("b2", candidate(22, (10, 101)), at(0))
    assert vote_of(other.take(at(0))).is_granted
