"""Steps of a transaction, one by one: what each is answered in which state, and what is refused with which error."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model.operations import BODY_LIMIT_BYTES, pack_operations, unpack_operations
from brokerha.model.outside.authors import author_in
from brokerha.model.records import TxDecided, TxForgotten, TxPrepared
from brokerha.model.requests import TxReply
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish

XID = "1:aa:"
BACKUPS = [(), ("b1", "b2")]


@pytest.fixture(params=BACKUPS, ids=["alone", "two backups"])
def bench(request: pytest.FixtureRequest) -> TxBench:
    return TxBench(request.param)


def prepared(bench: TxBench, xid: str = XID, text: str = "x") -> str:
    """A prepared transaction."""
    txid = bench.begun(publish("q", text), xid=xid)
    assert bench.ask("prepare", txid).answer == {"state": "prepared"}
    return txid


def errors(*replies: TxReply) -> list[str]:
    return [reply.error for reply in replies]


def test_who_began_it_is_its_last_operation(bench: TxBench) -> None:
    one, two, three = (
        bench.begun(*operations, xid=xid, user="anna")
        for operations, xid in (((publish("q", "x"),), ""), ((publish("q", "y"),), XID), ((), ""))
    )
    assert bench.ask("pending", two).answer["count"] == 1
    assert [bench.ask("commit", each).answer["state"] for each in (one, three)] == ["committed"] * 2
    assert bench.ask("prepare", two).answer == {"state": "prepared"}
    assert author_in(unpack_operations(bench.journal.state().prepared[two].body)) == "anna"
    assert bench.ask("commit", two).answer["state"] == "committed"
    bench.settle()
    bench.check_clean()


# ---- two phases


def test_one_phase_commit_of_a_transaction_with_an_xid(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID)
    assert bench.ask("commit", txid, one_phase=True).answer["state"] == "committed"
    assert bench.content.texts("q") == ["x"]
    bench.settle()
    bench.check_clean()


def test_prepare_then_commit(bench: TxBench) -> None:
    txid = prepared(bench)
    assert (word_of(bench.outcome(txid)), bench.content.texts("q")) == ("prepared", [])
    assert bench.ask("commit", txid, one_phase=False).answer == {"state": "committed", "lsn": 2}
    assert (word_of(bench.outcome(txid)), bench.content.texts("q")) == ("committed", ["x"])
    bench.settle()
    bench.check_clean()


def test_prepare_then_rollback(bench: TxBench) -> None:
    txid = prepared(bench)
    assert bench.ask("rollback", txid).answer == {"state": "aborted"}
    assert (word_of(bench.outcome(txid)), bench.content.texts("q")) == ("aborted", [])
    bench.settle()
    bench.check_clean()


def test_commit_in_the_wrong_phase_names_the_state(bench: TxBench) -> None:
    one = prepared(bench)
    open_one = bench.begun(publish("q", "y"), xid="1:bb:")
    replies = [bench.ask("commit", one, one_phase=True), bench.ask("commit", open_one, one_phase=False)]
    assert errors(*replies) == ["WrongState"] * 2
    assert "is prepared" in replies[0].reason
    assert "is open" in replies[1].reason


def test_while_another_session_uses_it_nobody_else_ends_it(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID, session="s1")
    replies = [bench.ask(action, txid, session="s2") for action in ("prepare", "commit", "rollback")]
    assert errors(*replies) == ["WrongState"] * 3
    assert all("session" in reply.reason for reply in replies)
    bench.ask("prepare", txid, session="s1")
    assert bench.ask("commit", txid, one_phase=False, session="s2").answer["state"] == "committed"


def test_an_xid_is_used_once_at_a_time_and_again_when_it_is_over(bench: TxBench) -> None:
    txid = prepared(bench)
    reply = bench.ask("begin", f"{bench.prefix}77.t", xid=XID)
    assert (reply.error, "in use" in reply.reason) == ("InvalidRequest", True)
    bench.ask("commit", txid, one_phase=False)
    assert prepared(bench, text="y") != txid


def test_an_unknown_transaction_is_named_as_such(bench: TxBench) -> None:
    replies = [bench.ask(action, "nobody-began-this") for action in ("operations", "prepare", "commit", "rollback", "ping")]
    assert errors(*replies) == ["UnknownTransaction"] * 5


def test_a_transaction_of_one_client_is_not_prepared_by_itself(bench: TxBench) -> None:
    assert bench.ask("prepare", bench.begun(publish("q", "x"))).error == "WrongState"


def test_preparing_nothing_is_over_at_once(bench: TxBench) -> None:
    txid = bench.begin(xid=XID)
    assert bench.ask("prepare", txid).answer == {"state": "read-only"}
    assert not bench.core.transacting.coordinator.book.xids


def test_prepare_and_commit_that_come_again_change_nothing(bench: TxBench) -> None:
    txid = prepared(bench)
    assert bench.ask("prepare", txid).answer == {"state": "prepared"}
    assert len([r for _, r in bench.journal.records() if isinstance(r, TxPrepared)]) == 1
    answers = [bench.ask("commit", txid, one_phase=False).answer for _ in range(2)]
    assert answers == [{"state": "committed", "lsn": 2}] * 2
    assert bench.ask("rollback", txid).error == "WrongState"


def test_recovery_lists_exactly_what_is_prepared_after_a_restart_and_a_fail_over() -> None:
    bench = TxBench()
    txids = {number: bench.begun(publish("q", str(number)), xid=f"1:{number:02x}:") for number in range(1, 10)}
    for number in (2, 3, 5, 6, 8, 9):
        bench.ask("prepare", txids[number])
    bench.ask("commit", txids[3], one_phase=False)
    bench.ask("rollback", txids[9])
    bench.ask("commit", txids[1], one_phase=True)
    for happens in (bench.settle, bench.restart, bench.fail_over):
        happens()
        rows = bench.core.transacting.coordinator.rows(bench.now())
        listed = {int(row["xid"].split(":")[1], 16) for row in rows if row["state"] == "prepared"}
        assert listed == {2, 5, 6, 8}
    bench.ask("commit", txids[2], one_phase=False)
    bench.ask("rollback", txids[5])
    assert bench.content.texts("q")[-1] == "2"


# ---- time-outs


def test_an_idle_transaction_is_rolled_back_and_later_calls_say_so(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID, timeout_ms=2_000)
    bench.run(1_500)
    assert bench.ask("ping", txid).answer == {"timeout_ms": 2_000}
    bench.run(1_500)
    assert word_of(bench.outcome(txid)) == "open"
    bench.run(1_000)
    for action in ("operations", "prepare", "commit", "ping"):
        reply = bench.ask(action, txid, operations=publish("q", "y"))
        assert (reply.error, "2000 ms" in reply.reason) == ("Aborted", True)
    assert bench.ask("rollback", txid).answer["state"] == "aborted"
    bench.settle()
    bench.check_clean()


def test_a_prepared_transaction_is_never_timed_out(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID, timeout_ms=1_000)
    bench.ask("prepare", txid)
    bench.run(60_000)
    assert word_of(bench.outcome(txid)) == "prepared"


def test_a_time_out_above_the_maximum_is_refused(bench: TxBench) -> None:
    reply = bench.ask("begin", f"{bench.prefix}77.t", timeout_ms=3_600_001)
    assert (reply.error, "3600000" in reply.reason) == ("InvalidRequest", True)
    assert bench.ask("begin", f"{bench.prefix}77.t", timeout_ms=3_600_000).answer["timeout_ms"] == 3_600_000


# ---- operations and limits


def test_operations_that_come_again_are_taken_once(bench: TxBench) -> None:
    txid = bench.begin()
    calls = [(0, ["a", "b"]), (0, ["a", "b"]), (1, ["b", "c"]), (3, ["d"])]
    counts = [bench.ask("operations", txid, first=n, operations=publish("q", *texts)).answer["count"] for n, texts in calls]
    assert counts == [2, 2, 3, 4]
    assert bench.ask("operations", txid, first=6, operations=publish("q", "z")).error == "InvalidRequest"
    assert bench.ask("operations", txid, first=0, operations=publish("q", "other")).error == "InvalidRequest"
    bench.ask("commit", txid)
    assert bench.content.texts("q") == ["a", "b", "c", "d"]


def test_pending_gives_the_operations_so_far() -> None:
    bench = TxBench(())
    txid = bench.begin()
    assert bench.ask("pending", txid).answer == {"body": b"", "count": 0}
    operations = [("put", "t", b"k", bytes([n])) for n in range(20)]
    bench.ask("operations", txid, operations=operations)
    assert bench.ask("pending", txid).answer == {"body": pack_operations(list(operations)), "count": 20}


def test_one_that_grows_too_large_stays_as_it_was(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"))
    reply = bench.ask("operations", txid, operations=publish("q", "y" * BODY_LIMIT_BYTES))
    assert (reply.error, str(BODY_LIMIT_BYTES) in reply.reason) == ("TooLarge", True)
    assert bench.ask("pending", txid).answer["count"] == 1


def test_open_transactions_and_their_bytes_are_limited() -> None:
    bench = TxBench((), open_limit=2, bytes_limit=1000)
    one, _ = bench.begin(), bench.begin()
    assert bench.ask("begin", f"{bench.prefix}77.t").error == "NotReady"
    assert bench.ask("operations", one, operations=publish("q", "y" * 1000)).error == "NotReady"
    bench.ask("rollback", one)
    assert not bench.ask("begin", f"{bench.prefix}77.t").error


def test_bad_arguments_are_named(bench: TxBench) -> None:
    txid = bench.begin()
    asked: list[tuple[str, dict[str, Any]]] = [("operations", {"operations": []}), ("operations", {"first": "x", "operations": [1]}), ("take", {}), ("commit", {"level": "x"}),
             ("commit", {"copies": 5}), ("commit", {"one_phase": 1}), ("dance", {}), ("begin", {"xid": 5})]  # fmt: skip
    assert errors(*(bench.ask(action, txid, **arguments) for action, arguments in asked)) == ["InvalidRequest"] * 8
    assert bench.ask("begin", "with blanks").error == "InvalidRequest"
    assert word_of(bench.outcome(txid)) == "open"


# ---- locks


def test_a_message_is_in_one_transaction_at_a_time_and_comes_back_in_its_place(bench: TxBench) -> None:
    bench.submit(publish("q", "x", "y", "z"))
    ids = bench.content.ids("q")
    one, two = bench.begin(), bench.begin()
    assert bench.ask("take", one, first=0, queue="q", candidates=[], count=2).answer["taken"] == []
    assert bench.ask("take", one, first=0, queue="q", candidates=ids, count=2).answer["taken"] == ids[:2]
    assert bench.ask("take", one, first=0, queue="q", candidates=ids, count=2).answer["taken"] == ids[:2]
    reply = bench.ask("operations", two, operations=accept("q", ids[0]))
    assert (reply.error, one in reply.reason) == ("NotReady", True)
    assert bench.submit(accept("q", ids[1])).error == "NotReady"
    assert bench.ask("take", two, first=0, queue="q", candidates=ids, count=2).answer["taken"] == ids[2:]
    bench.ask("rollback", one)
    assert bench.ask("take", two, first=1, queue="q", candidates=ids, count=1).answer["taken"] == ids[:1]
    bench.ask("commit", two)
    assert bench.content.texts("q") == ["y"]
    bench.settle()
    bench.check_clean()


def test_what_a_prepared_transaction_accepts_stays_locked_over_a_fail_over() -> None:
    bench = TxBench()
    bench.submit(publish("q", "x", "y"))
    ids = bench.content.ids("q")
    txid = bench.begin(xid=XID)
    bench.ask("take", txid, first=0, queue="q", candidates=ids, count=1)
    bench.ask("prepare", txid)
    bench.fail_over()
    other = bench.begin()
    assert bench.ask("take", other, first=0, queue="q", candidates=ids, count=2).answer["taken"] == ids[1:]
    bench.ask("rollback", txid)
    assert bench.ask("take", other, first=1, queue="q", candidates=ids, count=2).answer["taken"] == ids[:1]


# ---- by hand


@pytest.mark.parametrize(("action", "word"), [("commit", "committed"), ("rollback", "aborted")])
def test_a_decision_by_hand_is_reported_until_it_is_forgotten(action: str, word: str) -> None:
    bench = TxBench()
    txid = prepared(bench)
    assert bench.ask(action, txid, by_hand=True, one_phase=False).answer["state"] == word
    for happens in (bench.settle, bench.fail_over):
        happens()
        rows = bench.core.transacting.coordinator.rows(bench.now())
        assert [(row["xid"], row["state"], row["outcome"]) for row in rows] == [(XID, "heuristic", word)]
        assert bench.ask("begin", f"{bench.prefix}77.t", xid=XID).error == "InvalidRequest"
        reply = bench.ask("commit", txid, one_phase=False)
        assert "heuristic" in (reply.reason or reply.answer["reason"])
        assert (reply.error == "Aborted") is (word == "aborted")
        assert bench.ask("rollback", txid).answer["state"] == word
    assert bench.content.texts("q") == (["x"] if word == "committed" else [])
    assert bench.ask("forget", txid).answer == {"state": "forgotten"}
    assert word_of(bench.outcome(txid)) == word
    assert isinstance(next(r for _, r in bench.journal.records() if isinstance(r, TxForgotten)), TxForgotten)
    bench.settle()
    bench.check_clean()


def test_only_what_is_prepared_is_decided_by_hand_and_only_that_is_forgotten(bench: TxBench) -> None:
    txid = bench.begun(publish("q", "x"), xid=XID)
    assert errors(bench.ask("commit", txid, by_hand=True), bench.ask("rollback", txid, by_hand=True)) == ["WrongState"] * 2
    assert bench.ask("forget", txid).error == "WrongState"


def test_a_prepared_one_that_the_probe_rejects_is_a_heuristic_rollback() -> None:
    bench = TxBench()
    txid = prepared(bench)
    bench.worker.rejects[txid] = "a check does not hold"
    reply = bench.ask("commit", txid, one_phase=False)
    assert (reply.error, "a check does not hold" in reply.reason) == ("Aborted", True)
    bench.fail_over()
    rows = bench.core.transacting.coordinator.rows(bench.now())
    assert [(row["xid"], row["outcome"]) for row in rows] == [(XID, "aborted")]
    assert bench.ask("forget", txid).answer == {"state": "forgotten"}


@pytest.mark.parametrize(("reason", "error"), [("a check does not hold", "Rejected"), ("conflict: no such message", "Conflict")])
def test_one_of_a_client_that_the_probe_rejects_is_aborted_and_nothing_more(bench: TxBench, reason: str, error: str) -> None:
    txid = bench.begun(publish("q", "x"))
    bench.worker.rejects[txid] = reason
    reply = bench.ask("commit", txid)
    assert (reply.error, reply.reason) == (error, reason)
    assert word_of(bench.outcome(txid)) == "aborted"
    bench.settle()
    bench.check_clean()


# ---- what the master can take


def test_a_prepared_transaction_waits_for_a_master_that_can_write_again_and_an_open_one_does_not() -> None:
    bench = TxBench(())
    one, two = prepared(bench), bench.begun(publish("q", "y"))
    bench.core.withheld = "too few backups"
    assert bench.ask("commit", one, one_phase=False).error == "ReadOnly"
    reply = bench.ask("commit", two)
    assert (reply.error, "too few backups" in reply.reason) == ("Aborted", True)
    assert bench.ask("begin", f"{bench.prefix}77.t").error == "ReadOnly"
    bench.core.withheld = ""
    assert bench.ask("commit", one, one_phase=False).answer["state"] == "committed"
    assert not [r for _, r in bench.journal.records() if isinstance(r, TxDecided) and r.txid == two]


@pytest.mark.parametrize(("level", "lsn"), [("accepted", 0), ("synchronised", 1), ("applied", 1)])
def test_a_commit_waits_for_the_level_that_was_asked_for(level: str, lsn: int) -> None:
    bench = TxBench()
    bench.worker.is_stopped = level != "applied"
    reply = bench.ask("commit", bench.begun(publish("q", "x")), level=level)
    assert reply.answer == {"state": "committed", "lsn": lsn}


def test_a_commit_that_is_not_applied_in_time_is_unknown_and_later_known() -> None:
    bench = TxBench()
    bench.worker.is_stopped = True
    txid = bench.begun(publish("q", "x"))
    assert bench.ask("commit", txid, 500).error == "OutcomeUnknown"
    assert word_of(bench.outcome(txid)) == "committing"
    bench.worker.is_stopped = False
    bench.settle()
    assert word_of(bench.outcome(txid)) == "committed"
