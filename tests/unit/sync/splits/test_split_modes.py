"""None, Simple, Smart: both sides of a split go on, and agree again afterwards (rule R13)."""

from __future__ import annotations

import pytest

from brokerha.model.records import Appended, EpochInstalled
from brokerha.model.wire.epoch_messages import Tail
from brokerha.model.wire.messages import Bodies, Outgoing
from brokerha.sync import catching_up
from brokerha.sync.bodies import BodyExchange
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs import epochs
from tests.support.logs import memory_log
from tests.unit.paper.masters import Choice
from tests.unit.sync.epoch_table import LAG_MS
from tests.unit.sync.member_table import MemberTable

MODES = ("none", "simple", "smart")


def parted(*sides: str) -> Choice:
    """Only masters of one side hear each other."""
    side = {node: names for names in sides for node in names.split()}
    return lambda sender, out: side[sender] == side[out.to]


def split(mode: str, masters: int, *sides: str) -> MemberTable:
    """A common queue `a b`, then a split with writes on both sides: each master writes its own name."""
    table = MemberTable(masters, split_recovery=mode)
    table.make_queue("a", "b")
    for number in range(2):
        for node in table.names:
            table.write(node, f"{node}-{number}")
        table.live(2 * LAG_MS, parted(*sides))
    return table


@pytest.mark.parametrize("mode", MODES)
def test_what_a_master_of_the_losing_side_had_that_is_gone_is_handed_in_by_its_neighbour(mode: str) -> None:
    # Given a losing side of two, one of which never comes back
    table = split(mode, 5, "m1 m2 m3", "m4 m5")
    table.crash("m5")
    table.live(10 * LAG_MS)
    alive = [node for node in table.names if node != "m5"]
    assert len({tuple(table.queue(node)) for node in alive}) == 1
    assert sorted(table.queue("m1")) == sorted(["a", "b", *(f"{n}-{i}" for n in table.names for i in (0, 1))])
    # When it is back after all, nothing comes twice
    table.start("m5")
    table.live(8 * LAG_MS)
    assert table.queue("m5") == table.queue("m1")
    assert len(set(table.queue("m1"))) == len(table.queue("m1")) == 12


@pytest.mark.parametrize("mode", MODES)
def test_what_two_masters_had_taken_in_is_handed_in_again_by_both(mode: str) -> None:
    # Given a transaction that came to both masters of the losing side, and so to its LSN through one of them
    table = MemberTable(5, split_recovery=mode)
    table.make_queue("a")
    sides = parted("m1 m2 m3", "m4 m5")
    table.live(4 * LAG_MS, sides)
    for node in ("m4", "m5"):
        table.write(node, "x")
    table.live(2 * LAG_MS, sides)
    assert table.queue("m4") == table.queue("m5") == ["a", "x"]
    for node in ("m1", "m2"):
        table.write(node, node)
    table.live(2 * LAG_MS, sides)
    # When it is given up
    table.live(10 * LAG_MS)
    assert {tuple(sorted(table.queue(node))) for node in table.names} == {("a", "m1", "m2", "x")}
    # Then neither counts on the other one, who may have had it through this one on another side
    for node in ("m4", "m5"):
        stamped = [
            txid
            for _, record in table.journals[node].records()
            if isinstance(record, Appended) and record.origin == node
            for _, txid in record.entries
        ]
        assert stamped.count("x") == 2, node


def test_a_body_that_a_journal_dropped_after_a_rewind_is_not_taken_for_there() -> None:
    # Given bodies that came and were handed to a journal, which has forgotten them since, and one that is still to be written
    bodies = BodyExchange(SyncConfig("m1", ("m1", "m2")), memory_log("m1", "journal-m1"))
    bodies.take([("m2", "t1", b"body")], None)
    bodies.arrived()
    bodies.take([("m2", "t2", b"body")], None)
    assert bodies.has("m2", "t1")
    # When the queue goes back
    bodies.look_again()
    # Then the journal alone says what was written
    assert [bodies.has("m2", txid) for txid in ("t1", "t2")] == [False, True]


def slow_reader(monkeypatch: pytest.MonkeyPatch, table: MemberTable, reader: str, every_ms: int) -> Choice:
    """It gets ten entries of a tail at a time, and no sooner than after a while."""
    monkeypatch.setattr(catching_up, "TAIL_LIMIT", 10)
    monkeypatch.setattr(epochs, "TAIL_LIMIT", 10)
    came_ms = [0]

    def choice(_sender: str, out: Outgoing) -> bool:
        if out.to == reader and isinstance(out.message, Tail):
            if table.now.mono_ms - came_ms[0] < every_ms:
                return False
            came_ms[0] = table.now.mono_ms
        return True

    return choice


@pytest.mark.parametrize("mode", ["none", "smart"])
def test_one_that_has_to_read_for_longer_than_others_wait_gets_there_and_gives_up_its_own_only_once(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a side of one with five own transactions, and a hundred on the other side
    table = MemberTable(3, split_recovery=mode)
    table.make_queue("a", "b")
    table.write("m3", *(f"m3-{number}" for number in range(5)))
    for part in range(10):
        table.write("m1", *(f"m1-{part}-{number}" for number in range(10)))
        table.live(300, parted("m1 m2", "m3"))
    # When it reads ten of them in a third of the time that others wait, and these go on writing
    choice = slow_reader(monkeypatch, table, "m3", LAG_MS // 3)
    for number in range(40):
        table.write("m2", f"m2-{number}")
        table.live(LAG_MS // 5, choice)
    # Then all have one queue, in few epochs
    queues = {tuple(table.queue(node)) for node in table.names}
    assert len(queues) == 1
    assert len(set(*queues)) == 2 + 5 + 100 + 40
    assert table.cores["m1"].epoch.number < 9
    # And what it had only read counts as given up nowhere
    assert [split.total for split in table.journals["m3"].splits() if split.total] == [5]
    assert not any(split.total for node in ("m1", "m2") for split in table.journals[node].splits())
    # And all count the same lineages
    assert len({tuple(split.lineage for split in table.journals[node].splits()) for node in table.names}) == 1


def test_those_who_wait_for_one_on_its_way_do_not_leave_each_other() -> None:
    # Given that m3 gets nothing of what it lacks, and that m1 may not part from anybody yet
    table = split("smart", 3, "m1 m2", "m3")
    table.cores["m1"].is_ready_to_part = lambda: False

    def nothing_for_m3(_sender: str, out: Outgoing) -> bool:
        return not (out.to == "m3" and isinstance(out.message, Tail | Bodies))

    # When all have met, and m1 and m2 write all the time from then on
    while table.cores["m2"].epoch.members != table.names:
        table.live(LAG_MS // 20, nothing_for_m3)
    for number in range(60):
        table.write("m1", f"m1-on-{number}")
        table.write("m2", f"m2-on-{number}")
        table.live(LAG_MS // 20, nothing_for_m3)
    # Then none of both has gone on without the other one
    for node in ("m1", "m2"):
        installed = [r.epoch.members for r in table.epoch_records(node) if isinstance(r, EpochInstalled)]
        assert len(installed) > 2
        assert {members[:2] for members in installed} == {("m1", "m2")}


def test_one_that_dies_on_its_way_begins_anew() -> None:
    for mode in ("none", "smart"):
        table = split(mode, 3, "m1 m2", "m3")
        table.live(LAG_MS, lambda _sender, out: not (out.to == "m3" and isinstance(out.message, Tail)))
        table.restart("m3")
        table.live(10 * LAG_MS)
        assert len({tuple(table.queue(node)) for node in table.names}) == 1
        assert len(table.queue("m3")) == 8
