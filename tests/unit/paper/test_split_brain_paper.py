"""The story of the paper: the United Kingdom and the United States lose each other, and agree again.

One test for each sentence about split-brain, its use case, and the strategies None, Simple and Smart; the docstring has the idea in
our words. The masters are uk1, uk2 and us1 (us2 where sides are equal). What workers do with it is in the tests of sites.
"""

from __future__ import annotations

from functools import partial

import pytest

from brokerha.model.wire.messages import Outgoing
from tests.support.logs import memory_log
from tests.unit.paper.masters import Choice, Table

LAG_MS = 5_000
STEP_MS = 50
UK, US = ("uk1", "uk2"), ("us1",)


def connection_lost(sender: str, out: Outgoing) -> bool:
    """Only masters of one country hear each other."""
    return sender[:2] == out.to[:2]


def one_adapter_broken(sender: str, out: Outgoing) -> bool:
    """uk1 and us1 do not hear each other; both hear uk2."""
    return {sender, out.to} != {"uk1", "us1"}


def everybody(_sender: str, _out: Outgoing) -> bool:
    return True


class World(Table):
    """Masters of two countries that wait five seconds for those that are missing."""

    def __init__(self, mode: str, *names: str, lag_ms: int = LAG_MS) -> None:
        super().__init__(0, max_peer_lag_ms=lag_ms, split_recovery=mode)
        self.names = names or (*UK, *US)
        self.skew_us = dict.fromkeys(self.names, 0)
        self.journals = {name: memory_log(name, f"journal-of-{name}") for name in self.names}
        for name in self.names:
            self.start(name)
        self.live(300)
        self.write("uk1", "U1", "U2")
        self.live(500)

    def live(self, for_ms: int, choice: Choice = everybody) -> None:
        self.settle(for_ms // STEP_MS, STEP_MS, choice)

    def split(self) -> None:
        """The connection is lost for long; both countries write before and after the time-out."""
        for name in self.names:
            self.write(name, f"{name}-early")
        self.live(2 * LAG_MS, connection_lost)
        for name in self.names:
            self.write(name, f"{name}-late")
        self.live(1_000, connection_lost)

    def heal(self) -> None:
        """The connection is back."""
        self.live(2 * LAG_MS)

    def own(self, *names: str) -> list[str]:
        """What these took in during the split."""
        return sorted(f"{name}-{when}" for name in names for when in ("early", "late"))


# ---- the split


def test_masters_that_are_disconnected_collect_updates_and_do_not_execute_them_until_the_time_is_over() -> None:
    """They continue to collect updates, but do not execute them, in the hope that the connection will come back."""
    world = World("smart")
    world.write("uk1", "a")
    world.write("us1", "b")
    world.live(LAG_MS - 1_000, connection_lost)
    assert {name: world.queue(name) for name in world.names} == {name: ["U1", "U2"] for name in world.names}
    # When it does come back in time nothing has happened at all
    world.live(1_000)
    assert [sorted(world.queue(name)) for name in world.names] == [["U1", "U2", "a", "b"]] * 3
    assert [core.gone_back for core in world.cores.values()] == [None] * 3
    assert {core.epoch.id for core in world.cores.values()} == {(1, "")}


def test_before_they_go_on_each_part_has_a_backup_made() -> None:
    """After the time-out both parts do a backup of the database using one of the workers."""
    world = World("simple")
    asked: list[str] = []

    def ask(name: str) -> bool:
        asked.append(name)
        return False

    for name, core in world.cores.items():
        core.is_ready_to_part = partial(ask, name)
    world.live(LAG_MS + 2_000, connection_lost)
    # While the backup is not there they wait, but not for ever
    assert {"uk1", "us1"} <= set(asked)
    assert {core.epoch.id for core in world.cores.values()} == {(1, "")}
    world.live(LAG_MS, connection_lost)
    assert world.cores["us1"].epoch.members == US
    assert world.cores["uk1"].epoch.members == world.cores["uk2"].epoch.members == UK


def test_after_it_both_parts_execute_updates_and_synchronise_them_across_the_masters_they_reach() -> None:
    """They continue to execute updates, while synchronising the updates across the reachable masters."""
    world = World("smart")
    world.split()
    assert sorted(world.queue("uk1")[2:]) == world.own("uk1", "uk2")
    assert world.queue("uk1") == world.queue("uk2")
    assert world.queue("us1")[2:] == world.own("us1")


def test_a_client_in_the_one_country_sees_other_results_than_one_in_the_other() -> None:
    """Both databases are inconsistent for the time being."""
    world = World("smart")
    world.split()
    assert not {*world.queue("uk1")[2:]} & {*world.queue("us1")[2:]}


def test_one_broken_adapter_changes_nothing() -> None:
    """When only one connection between the parts is lost, updates reach the unreachable master through the others."""
    world = World("smart")
    world.write("us1", "a")
    world.live(2 * LAG_MS, one_adapter_broken)
    world.write("uk1", "b")
    world.live(500, one_adapter_broken)
    assert [world.queue(name) for name in world.names] == [["U1", "U2", "a", "b"]] * 3
    assert {core.epoch.id for core in world.cores.values()} == {(1, "")}


# ---- the recovery


def test_the_majority_decides_which_log_is_the_correct_one() -> None:
    """All masters decide on the correct transaction log using majority vote: here the United Kingdom's."""
    world = World("smart")
    world.split()
    correct = world.queue("uk1")
    world.heal()
    for name in world.names:
        assert world.queue(name)[: len(correct)] == correct


def test_the_minority_goes_back_to_the_last_state_in_common_and_executes_the_log_from_there() -> None:
    """The minority masters restore the database from the backup and get all the updates of the log after it."""
    world = World("smart")
    world.split()
    world.heal()
    assert world.cores["us1"].gone_back == len(["U1", "U2"])
    assert [world.cores[name].gone_back for name in UK] == [None, None]


def test_the_majority_negotiates_the_updates_of_the_minority_and_adds_them() -> None:
    """The US cluster negotiates its updates as new updates: they come after what the United Kingdom has, once."""
    world = World("smart")
    world.split()
    correct = len(world.queue("uk1"))
    world.heal()
    assert sorted(world.queue("uk2")[correct:]) == world.own("us1")


def test_the_majority_goes_on_while_the_minority_catches_up() -> None:
    """Both UK data centres continue executing updates, because the US cluster is obviously lagging behind."""
    world = World("smart")
    world.split()
    world.write("uk1", "meanwhile")
    world.heal()
    world.write("us1", "continues to take part")
    world.live(1_000)
    assert world.queue("uk1") == world.queue("us1")
    assert world.queue("us1")[-1] == "continues to take part"
    assert "meanwhile" in world.queue("us1")


def test_equal_parts_choose_the_same_one() -> None:
    """Where there is no majority all name the same winner, whoever begins."""
    winners = set()
    for first in ("uk1", "us1"):
        world = World("smart", "uk1", "us1")
        world.split()
        before = {name: world.queue(name) for name in world.names}
        world.live(300, lambda sender, _out, first=first: sender == first)  # type: ignore[misc]
        world.heal()
        winners.add(tuple(name for name in world.names if world.queue("uk1")[: len(before[name])] == before[name]))
    assert len(winners) == 1
    assert winners != {()}


# ---- strategies


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
def test_no_transaction_is_lost_or_doubled_whatever_the_strategy(mode: str) -> None:
    """Transactions after the split are synchronised again across the cluster."""
    world = World(mode)
    world.split()
    world.heal()
    assert len({tuple(world.queue(name)) for name in world.names}) == 1
    assert sorted(world.queue("us1")) == sorted(["U1", "U2", *world.own(*world.names)])


def test_none_takes_no_backup() -> None:
    """No action: no backup will be taken upon split detection; nobody asks for one."""
    world = World("none")
    for core in world.cores.values():
        core.is_ready_to_part = lambda: pytest.fail("nobody waits for a backup")
    world.live(2 * LAG_MS, connection_lost)
    assert world.cores["us1"].epoch.members == US


def test_none_does_not_delay_updates() -> None:
    """Updates will not be delayed upon split: no longer than it takes to notice that somebody is missing."""
    world = World("none", lag_ms=4 * LAG_MS)
    world.write("us1", "a")
    world.live(500, connection_lost)
    assert world.queue("us1") == ["U1", "U2", "a"]


def test_simple_takes_all_back_to_the_last_known_good_state() -> None:
    """All workers will be restored to the last known good state before the split."""
    world = World("simple")
    world.split()
    world.heal()
    assert [core.gone_back for core in world.cores.values()] == [2, 2, 2]


def test_smart_deems_one_masters_state_correct() -> None:
    """Same as Simple, except that one master's state is deemed correct; only those that do not match it are restored."""
    world = World("smart")
    world.split()
    world.heal()
    assert [core.gone_back for core in world.cores.values()] == [None, None, 2]
