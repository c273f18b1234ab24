"""A restart between any two steps of an epoch change: the journal brings back what the master knew, and nothing is stamped twice."""

from __future__ import annotations

from dataclasses import replace

from brokerha.model.wire.epoch_messages import EpochReport, Tail
from brokerha.model.wire.messages import Bodies
from tests.unit.sync.epoch_table import EpochTable


def alike(table: EpochTable, name: str) -> None:
    """A restart knows what the master knew before."""
    before = table.cores[name]
    table.restart(name)
    after = table.cores[name]
    assert (after.epoch, after.promised, after.lsn) == (before.epoch, before.promised, before.lsn)
    assert (list(after.parked), after.pending) == (list(before.parked), before.pending)
    assert list(after.incoming) == list(before.incoming)
    assert after.counts == before.counts
    assert (after.recovery.done, after.recovery.held) == (before.recovery.done, before.recovery.held)
    assert after.peers.journals == before.peers.journals
    assert after.last() == before.last()


def test_a_restart_finds_promise_epoch_queue_and_list_at_every_step() -> None:
    table = EpochTable()
    table.make_queue("a", "b")
    alike(table, "m2")
    table.live(200)
    table.write("m2", "first", "second")
    table.write("m1", "third")
    table.round("m2", "m1")
    table.deliver(lambda sender, out: sender == "m1" and out.to == "m2")
    table.round("m2")
    table.lose()
    alike(table, "m2")
    table.prepare("m2", (2, "m1"))
    alike(table, "m2")
    table.write("m2", "fourth")
    table.round("m2")
    alike(table, "m2")
    listed = tuple(entry[:3] for entry in table.cores["m2"].incoming)
    decided = table.next_epoch(2, "m1", "m1", "m2", recovered=listed[1:])
    table.install("m2", decided)
    assert table.cores["m2"].epoch == decided
    alike(table, "m2")
    # In the middle of the recovered list: m1 says that it holds one of its two entries
    row = table.cores["m1"].row(99, table.now)
    row = replace(row, epoch=decided.id, promised=decided.id, recovered=1, have=dict(decided.starts))
    table.tell("m2", replace(table.posts("m1", "m2")[-1], row=row, relayed=(), streams=()), "m1")
    table.round("m2")
    assert table.cores["m2"].recovery.done == 1
    alike(table, "m2")
    table.tell("m2", replace(table.posts("m1", "m2")[-1], row=replace(row, number=100, recovered=2)), "m1")
    table.round("m2")
    assert table.cores["m2"].recovery.is_over
    alike(table, "m2")
    assert len(table.queue("m2")) == 4


def test_what_came_with_a_tail_is_not_pending_after_a_restart() -> None:
    # Given m3, frozen, that takes its own and other entries over by their LSN
    table = EpochTable()
    table.write("m3", "x", "y")
    table.round("m3")
    entries = tuple(entry[:3] for entry in table.cores["m3"].incoming)
    table.prepare("m3", (2, "m1"))
    table.install("m3", table.next_epoch(2, "m1", "m1", "m3", base_lsn=2, base_txid="y"))
    table.tell("m3", Tail(1, entries[:1]), "m1")
    table.round("m3")
    assert table.queue("m3") == ["x"]
    alike(table, "m3")
    assert table.cores["m3"].pending == {"y"}
    table.install("m3", table.next_epoch(2, "m1", "m1", "m3", base_lsn=2, base_txid="y", starts={"m3": 2}))
    table.tell("m3", Tail(2, entries[1:]), "m1")
    table.round("m3")
    assert table.queue("m3") == ["x", "y"]
    assert table.cores["m3"].epoch.id == (2, "m1")
    # Then nothing of it is synchronised a second time
    assert table.cores["m3"].pending == set()
    assert list(table.cores["m3"].parked) == []
    alike(table, "m3")


def test_what_came_with_a_tail_and_was_trimmed_is_not_stamped_again_after_a_restart() -> None:
    # Given m3, whose own transaction came back to it with a tail, and was executed and trimmed since
    table = EpochTable()
    table.write("m3", "x")
    table.round("m3")
    own = next(iter(table.cores["m3"].incoming))[:3]
    tail = (own, *((own[0] + 1 + n, f"t{n}", "m1") for n in range(3)))
    table.prepare("m3", (2, "m1"))
    decided = table.next_epoch(2, "m1", "m1", "m3", base_lsn=4, base_txid="t2", starts={"m3": 1})
    table.install("m3", decided)
    table.tell("m3", Tail(1, tail[:1]), "m1")
    table.round("m3")
    table.cores["m3"].on_bodies("m1", Bodies((("m1", "t0", b""), ("m1", "t1", b""), ("m1", "t2", b""))))
    table.tell("m3", Tail(2, tail[1:3]), "m1")
    table.round("m3")
    table.journals["m3"].trim(below=3)
    assert table.journals["m3"].body("m3", "x") is None
    # When it restarts before the epoch begins, and then it begins
    table.restart("m3")
    table.install("m3", decided)
    table.tell("m3", Tail(4, tail[3:]), "m1")
    table.round("m3")
    # Then nothing is left of it to stamp
    assert table.cores["m3"].epoch.id == (2, "m1")
    assert (table.incoming("m3"), table.cores["m3"].pending) == ([], set())


def test_what_a_later_epoch_went_on_without_is_not_taken_for_synchronised_after_a_restart() -> None:
    # Given m3 in an epoch that recovers three entries, of which nobody else ever got the body of the second, its own
    table = EpochTable()
    table.write("m3", "own")
    table.round("m3")
    stamp = next(iter(table.cores["m3"].incoming))[0]
    listed = ((stamp, "a", "m1"), (stamp, "own", "m3"), (stamp, "b", "m1"))
    table.prepare("m3", (2, "m1"))
    table.install("m3", table.next_epoch(2, "m1", "m1", "m2", "m3", recovered=listed))
    # When the others have gone on with the other two in a later epoch, and m3 reads that from them and restarts
    row = replace(table.cores["m1"].row(99, table.now), epoch=(3, "m1"), promised=(3, "m1"), lsn=2)
    table.tell("m3", replace(table.posts("m1", "m3")[-1], row=row, relayed=(), streams=()), "m1")
    table.cores["m3"].on_bodies("m1", Bodies((("m1", "a", b"a"), ("m1", "b", b"b"))))
    table.round("m3")
    table.tell("m3", Tail(1, (listed[0], listed[2])), "m1")
    table.round("m3")
    assert table.queue("m3") == ["a", "b"]
    table.restart("m3")
    # Then its own entry still waits, is reported, and comes with the next epoch
    assert table.cores["m3"].pending == {"own"}
    (out,) = table.prepare("m3", (4, "m1"))
    assert isinstance(out.message, EpochReport)
    assert "own" in [txid for _, _, txid, _ in out.message.recovered]
    table.install("m3", table.next_epoch(4, "m1", "m1", "m3", base_lsn=2, base_txid="b"))
    assert table.incoming("m3") == ["own"]
