"""One test for each sentence of the cluster paper (writes, reads, workers, recovery, backup) that concerns workers.

Docstrings name the chapter and quote a few words. Where this design does something else on purpose, the test shows what
replaces it, and its docstring says why. Masters that peer are the subject of test_sync_paper.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.master.config import RetentionConfig
from brokerha.master.retention import Facts, Retention
from brokerha.master.site_commands import SiteCommands
from brokerha.model.ids import Instant
from brokerha.model.operations import Put, pack_operations
from brokerha.model.ready import Damaged
from brokerha.model.records import Accepted, Added
from brokerha.model.wire.messages import Apply, Chunk, Execute, Executed, LoadFrom, Outgoing, Task, TaskReport
from brokerha.replication.site.config import Standing
from tests.unit.paper.site_table import SiteTable


def grown(*workers: str, **feed: Any) -> SiteTable:
    """A site with 40 transactions, written in steps, so that its log can be cut."""
    table = SiteTable(*workers, **feed)
    for _ in range(4):
        table.write(10)
        table.settle(5)
    assert table.are_equal()
    return table


def spoil(table: SiteTable, node: str) -> None:
    """Somebody writes into the store of a worker, behind its back; its scrub finds that out."""
    table.copies[node].damage(Put("put", "foreign", b"key", b"value"))
    table.workers[node].step(Damaged("the data is not what its fingerprint says"), table.now())


# ---- writes


def test_every_write_reaches_all_workers_and_each_keeps_a_full_copy() -> None:
    """WRITE requests: "sent to all available workers", and "all workers keep a full copy"."""
    table = SiteTable("w1", "w2", "w3")
    table.write(20)
    table.settle(20)
    assert table.lsns() == {"w1": 20, "w2": 20, "w3": 20}
    assert table.are_equal()


def test_the_master_keeps_a_log_of_recent_transactions_and_no_data() -> None:
    """WRITE requests: "The master keeps a log of the recent transactions"."""
    table = grown("w1")
    assert [txid for _, txid, _ in table.journal.ordered(1, 3)]
    assert len(table.journal.results(1, 100)) == 40
    table.journal.trim(21)
    assert table.journal.results(1, 100) == []


# ---- reads (the way of one read is in test_reads_paper.py)


def test_only_available_workers_are_read() -> None:
    """READ requests: "passed to one of the available worker nodes": in sync, following, free, and meant for reads."""
    table = grown("w1", "w2", "w3")
    assert table.core.site.readable(table.ms) == ["w1", "w2", "w3"]
    spoil(table, "w2")
    table.settle(2)
    assert table.core.site.readable(table.ms) == ["w1", "w3"]


# ---- updates


def test_each_update_is_first_logged_then_sent_to_the_probe_and_then_to_the_others() -> None:
    """Updates: "first logged. Then a probe node is selected", and if it succeeds "forwarded to the rest of the nodes"."""
    table = SiteTable("w1", "w2", "w3")
    table.settle(5)
    steps: list[str] = []
    table.write(1)
    for _ in range(12):
        records, letters = len(list(table.journal.records())), len(table.sent)
        table.turn()
        steps += [type(record).__name__ for _, record in list(table.journal.records())[records:]]
        steps += [f"{type(out.message).__name__} {out.to}" for _, out in table.sent[letters:] if _has_items(out)]
    wanted = [step for step in steps if step in {"Accepted", "Added"} or step.startswith(("Execute", "Apply"))]
    assert wanted == [Accepted.__name__, Added.__name__, "Execute w1", "Executed m1", "Apply w2", "Apply w3"]


def _has_items(out: Outgoing) -> bool:
    return isinstance(out.message, Execute | Executed) or (isinstance(out.message, Apply) and bool(out.message.items))


def test_control_queries_are_evaluated_and_an_update_that_breaks_one_changes_nothing_anywhere() -> None:
    """Updates: "control queries are evaluated against it"; the others get the update only "If this control suite passes"."""
    table = SiteTable("w1", "w2")
    table.submit(("put", "stock", b"sku", b"5"), ("control-add", "never-below-zero", "key", "stock", "sku", ">= 0"))
    table.submit(("put", "stock", b"sku", b"-1"), ticket=1)
    table.submit(("put", "stock", b"other", b"7"), ticket=2)
    table.settle(150)
    assert sorted((reply.ticket, reply.status) for reply in table.replies) == [(1, "rejected"), (2, "applied")]
    assert "never-below-zero" in next(reply.reason for reply in table.replies if reply.ticket == 1)
    assert table.are_equal()
    assert table.lsns() == {"w1": 3, "w2": 3}
    # The rejected one left no effect in the log that others follow.
    assert [line.effect == b"" for line in table.copies["w2"].logged(1, 3)] == [False, True, False]


def test_a_worker_that_does_not_process_an_update_is_disabled_and_recovered() -> None:
    """Updates: nodes "that do not successfully process it are disabled and scheduled for recovery replication"."""
    table = grown("w1", "w2", "w3")
    # Given a store whose fingerprint is not that of the others, so that the next line leads it elsewhere
    spoiled = table.copies["w3"]
    spoiled.execute(41, [("foreign", 1, _body())])
    table.crash("w3")
    table.start("w3")
    table.settle(3)
    assert table.core.site.readable(table.ms) == ["w1", "w2"]
    table.settle(300)
    assert table.sent_to("w3", LoadFrom)
    assert table.core.site.readable(table.ms) == ["w1", "w2", "w3"]
    table.write(5)
    table.settle(20)
    assert table.are_equal()


def _body() -> bytes:
    return pack_operations([("put", "foreign", b"key", b"value")])


def test_an_update_needs_not_be_deterministic_because_its_effect_is_what_is_replicated() -> None:
    """Updates: "must be completely deterministic" there, and one with now() "causes a synchronisation error": not here.

    One worker executes; the others get what it changed. So no update can make copies differ, and none triggers a replication.
    """
    table = SiteTable("w1", "w2", "w3")
    table.write(10)
    table.settle(20)
    executed = {node: bool(table.sent_to(node, Execute)) for node in ("w1", "w2", "w3")}
    assert executed == {"w1": True, "w2": False, "w3": False}
    assert table.copies["w2"].logged(1, 10) == table.copies["w1"].logged(1, 10)
    assert not any(table.sent_to(node, LoadFrom) for node in ("w1", "w2", "w3"))


def test_a_signature_that_does_not_match_is_detected_and_answered_with_a_replication() -> None:
    """Updates: the master "will detect the difference in each worker nodes signature" and trigger a full replication."""
    table = grown("w1", "w2", "w3")
    table.copies["w2"].execute(41, [("foreign", 1, _body())])
    table.crash("w2")
    table.start("w2")
    table.write(1)
    table.settle(5)
    assert table.feed("w2").standing in (Standing.OUT_OF_SYNC, Standing.LOADING)
    table.settle(300)
    assert table.feed("w2").is_on
    assert table.are_equal()


# ---- a worker is added


def test_a_new_worker_is_synchronised_when_the_history_is_complete() -> None:
    """Synchronisation: with "the full transaction history" it "just synchronises the updates with the new worker"."""
    table = grown("w1", "w2")
    commands = SiteCommands(table.core, protect_single_worker=True)
    commands.run("worker-add", {"worker": "w3"}, table.now())
    table.start("w3")
    table.settle(150)
    assert table.lsns()["w3"] == 40
    assert not table.sent_to("w3", LoadFrom)
    assert table.are_equal()


def test_a_new_worker_copies_another_one_when_only_recent_history_is_there() -> None:
    """Replication: with "the recent transaction history" it "selects another worker and instructs it to copy its data"."""
    table = grown("w1", "w2")
    table.journal.trim(21)
    commands = SiteCommands(table.core, protect_single_worker=True)
    commands.run("worker-add", {"worker": "w3"}, table.now())
    table.start("w3")
    table.settle(300)
    assert table.sent_to("w3", LoadFrom, Chunk)
    assert table.lsns()["w3"] == 40
    assert table.are_equal()


def test_how_many_transactions_are_kept_and_for_how_long_are_settings() -> None:
    """Log: "LogMaxSize: the maximum number of stored transactions", "LogMaxDepth: the maximum minutes to store" them."""
    table = grown("w1")
    now = Instant(table.ms, table.ms * 1000)
    by_size = Retention(RetentionConfig(max_size=10, slack=1)).step(table.journal, now, Facts(40, 40))
    assert by_size is not None
    assert by_size.below == 31
    by_depth = Retention(RetentionConfig(max_depth_us=1, slack=1, known_ids=0)).step(table.journal, now, Facts(40, 40))
    assert by_depth is not None
    assert by_depth.below == 41


# ---- out of sync


def test_with_two_workers_the_master_is_read_only_exactly_while_one_is_out_of_sync() -> None:
    """Two workers: it "goes in a read-only mode", and back "to read/write mode" when "the worker is back in-synch"."""
    table = grown("w1", "w2")
    assert table.refusal() == ""
    spoil(table, "w2")
    table.settle(2)
    refused = 0
    while table.refusal():
        refused += 1
        assert not table.feed("w2").is_on
        assert table.core.site.readable(table.ms) == ["w1"]
        table.turn()
        assert refused < 500
    assert refused > 1
    assert table.feed("w2").is_on
    assert table.are_equal()
    table.write(ticket=5)
    table.settle(20)
    assert [reply.status for reply in table.replies] == ["applied"]


def test_with_enough_history_an_out_of_sync_worker_is_replayed() -> None:
    """Two workers: "If it has enough history, it replays the updates" (synchronisation)."""
    table = grown("w1", "w2", min_in_sync=1)
    table.crash("w2")
    table.pass_ms(table.config.feed.dead_after_ms)
    assert table.feed("w2").standing is Standing.UNKNOWN
    table.write(30)
    table.settle(10)
    table.start("w2")
    table.settle(30)
    assert table.lsns() == {"w1": 70, "w2": 70}
    assert not table.sent_to("w2", LoadFrom)


def test_without_enough_history_it_is_replicated_from_one_in_sync() -> None:
    """Two workers: otherwise another in-sync worker is to "replicate directly to the problem worker".

    There it is chosen "at random"; here it is the one with the least to do, so that reads suffer least.
    """
    table = grown("w1", "w2", "w3", "w4", min_in_sync=1)
    table.crash("w2")
    for _ in range(3):
        table.write(10)
        table.settle(5)
    table.journal.trim(61)
    table.workers["w1"].running_reads = 9
    table.workers["w3"].running_reads = 4
    table.workers["w4"].running_reads = 1
    table.pass_ms(2000)
    table.start("w2")
    table.settle(300)
    orders = table.sent_to("w2", LoadFrom)
    assert isinstance(orders[0], LoadFrom)
    assert orders[0].sources == ("w4", "w3", "w1")
    assert table.lsns()["w2"] == 70
    assert table.are_equal()


@pytest.mark.parametrize("victim", ["w1", "w2", "w3"])
def test_with_three_workers_any_one_may_fail_and_the_site_stays_writable(victim: str) -> None:
    """Three workers: "fully functional in the event of any node failure"."""
    table = grown("w1", "w2", "w3")
    table.crash(victim)
    for number in range(20):
        table.write(ticket=number + 1)
        table.settle(1, step_ms=500)
        assert table.refusal() == ""
    table.pass_ms(3000)
    assert [reply.status for reply in table.replies] == ["applied"] * 20
    table.start(victim)
    table.settle(100)
    assert table.are_equal()
    assert table.lsns() == {"w1": 60, "w2": 60, "w3": 60}


def test_with_three_workers_a_replication_does_not_make_the_master_read_only() -> None:
    """Three workers: "During the replication, the master DOES NOT go in a read-only mode"."""
    table = grown("w1", "w2", "w3")
    table.journal.trim(21)
    table.wipe("w3")
    table.start("w3")
    loading = 0
    for number in range(300):
        if number % 5 == 0:
            table.write(ticket=number + 1)
        table.turn()
        assert table.refusal() == ""
        loading += table.feed("w3").standing is Standing.LOADING
    table.settle(100)
    assert loading > 1
    assert {reply.status for reply in table.replies} == {"applied"}
    assert table.feed("w3").is_on
    assert table.are_equal()


def test_damage_that_was_found_is_never_read_again_not_even_after_a_restart() -> None:
    """Three workers, beyond it: an out-of-sync worker that dies before it was healed does not come back with its damage."""
    table = grown("w1", "w2", "w3")
    spoil(table, "w2")
    table.turn()
    table.turn(lambda _sender, out: out.to != "w2")
    table.crash("w2")
    table.start("w2")
    for _ in range(300):
        table.turn()
        if "w2" in table.core.site.readable(table.ms):
            break
    assert table.are_equal()
    assert table.sent_to("w2", Chunk)


# ---- backup


def backing_up(table: SiteTable) -> tuple[SiteCommands, dict[str, Any]]:
    commands = SiteCommands(table.core, protect_single_worker=True)
    return commands, commands.run("backup", {"name": "b"}, table.now())


def test_a_backup_takes_one_worker_in_sync_out_of_service_and_the_site_stays_writable() -> None:
    """Backup: a worker "with a full transaction log" is switched off and makes it, "the cluster remains in read-write mode".

    Here the worker answers no reads meanwhile, but goes on following the log: there is nothing to be synchronised afterwards.
    """
    table = grown("w1", "w2")
    commands, row = backing_up(table)
    table.turn()
    assert table.sent_to(row["worker"], Task)
    others = [node for node in ("w1", "w2") if node != row["worker"]]
    assert table.core.site.readable(table.ms) == others
    table.write(ticket=1, copies=2)
    table.settle(150)
    assert [reply.status for reply in table.replies] == ["applied"]
    report = TaskReport(row["request"], "done", 1, 1, "", {})
    table.deliver(row["worker"], Outgoing("m1", report))
    assert commands.run("task", {"request": row["request"]}, table.now())["state"] == "done"
    assert table.core.site.readable(table.ms) == ["w1", "w2"]
    assert table.are_equal()


def test_a_backup_is_made_by_a_worker_in_sync_and_the_last_one_goes_on_serving() -> None:
    """Backup: "selects a worker with a full transaction log": and leaves at least one that serves."""
    table = grown("w1", "w2")
    spoil(table, "w2")
    table.settle(2)
    assert backing_up(table)[1]["worker"] == "w1"
    assert table.core.site.readable(table.ms) == ["w1"]
