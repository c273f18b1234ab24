"""Transactions, queues and two phases of the client, over HTTP against a model of a node."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import brokerha
from brokerha.client import Client, Session
from brokerha.client import transactions as transactions_module
from brokerha.client.reads import QueueMessage
from brokerha.client.transactions import Transaction
from brokerha.model import errors
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import Served, serving
from tests.unit.http.fake_front import FakeFront


def bodies(messages: list[QueueMessage]) -> list[bytes]:
    return [message.body for message in messages]


# ---- one transaction


def test_leaving_the_block_commits_everything_at_one_lsn(db: Session, served: Served) -> None:
    db.publish("inbox", "9.90", "text/plain")
    with db.transaction(timeout=5) as tx:
        message = tx.accept("inbox")
        assert message is not None
        tx.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
        tx.put("prices", "sku-1", message.body)
        tx.publish("outbox", message.body, message.content_type)

    assert tx.committed == (tx.txid, 2)
    assert db.least_lsn() == 2
    assert db.get("prices", "sku-1") == b"9.90"
    assert db.queue("inbox") == []
    assert db.queue("outbox") == [QueueMessage(f"{tx.txid}.4", "text/plain", b"9.90")]
    assert db.queues()["inbox"] == {"depth": 0, "published": 1, "accepted": 1}
    assert served.front.transactions.calls[0][2]["timeout_ms"] == 5000


def test_an_error_in_the_block_rolls_back(db: Session, served: Served) -> None:
    db.publish("inbox", "a")

    def fails() -> None:
        with db.transaction() as tx:
            tx.accept("inbox")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    assert not served.front.transactions.open
    assert bodies(db.queue("inbox")) == [b"a"]


def test_reads_inside_see_what_was_done_and_reads_outside_do_not(db: Session) -> None:
    with db.transaction() as tx:
        tx.put("t", "k", "v")
        tx.add("main", "<urn:a> <urn:b> <urn:c> .\n")
        tx.publish("q", "m")
        assert (tx.get("t", "k"), db.get("t", "k")) == (b"v", None)
        assert (tx.size("main"), db.size("main")) == (1, 0)
        assert tx.is_true("main", "ASK { <urn:a> ?p ?o }")
        assert tx.range("t") == [(b"k", b"v")]
        assert bodies(tx.queue("q")) == [b"m"]
        assert db.queues() == {}
        tx.remove("main", "<urn:a> <urn:b> <urn:c> .\n")
        tx.delete("t", "k")
        assert (tx.size("main"), tx.get("t", "k")) == (0, None)


def test_operations_are_handed_over_in_groups(db: Session, served: Served) -> None:
    with db.transaction() as tx:
        for number in range(transactions_module.GROUP_LIMIT + 1):
            tx.put("t", str(number), "v")

    sizes = [len(call[2]["operations"]) for call in served.front.transactions.calls if call[0] == "operations"]
    assert sizes == [transactions_module.GROUP_LIMIT, 1]
    assert len(served.front.keys) == transactions_module.GROUP_LIMIT + 1


def test_what_is_wrong_with_an_operation_is_told_and_nothing_is_committed(db: Session, served: Served) -> None:
    with pytest.raises(errors.InvalidRequest, match="a key has"), db.transaction() as tx:
        tx.put("t", "", "v")
    with pytest.raises(errors.InvalidRequest, match="MALFORMED"), db.transaction() as tx:
        tx.update("main", "INSERT")

    assert (served.front.results, served.front.transactions.open) == ([], {})


def test_an_operation_that_is_refused_is_taken_out_and_the_others_stay(db: Session, served: Served) -> None:
    with db.transaction() as tx:
        tx.put("t", "before", "v")
        tx.update("main", "INSERT")
        tx.put("t", "after", "v")
        tx.add("main", "nonsense")
        with pytest.raises(errors.InvalidRequest, match=r"MALFORMED(?s:.*)this update main was taken out"):
            tx.get("t", "before")
        with pytest.raises(errors.InvalidRequest, match="this add main was taken out"):
            tx.get("t", "before")
        assert tx.range("t") == [(b"after", b"v"), (b"before", b"v")]

    assert tx.committed is not None
    assert served.front.keys == {("t", b"before"): b"v", ("t", b"after"): b"v"}


def test_after_a_refused_commit_the_transaction_can_be_rolled_back(db: Session, served: Served) -> None:
    tx = db.transaction().begin()
    tx.update("main", "INSERT")
    with pytest.raises(errors.InvalidRequest, match="MALFORMED"):
        tx.commit()
    tx.rollback()

    assert served.front.transactions.open == {}


def test_what_a_state_does_not_allow_takes_nothing_out(db: Session, served: Served) -> None:
    tx = db.transaction().begin()
    tx.put("t", "k", "v")
    served.front.transactions.open[tx.txid].state = "prepared"
    with pytest.raises(errors.WrongState):
        tx.flush()
    served.front.transactions.open[tx.txid].state = "open"
    tx.commit()

    assert served.front.keys == {("t", b"k"): b"v"}


def test_a_failed_expectation_is_aborted_and_may_be_run_again(db: Session) -> None:
    with db.transaction() as tx:
        tx.expect_key("t", "k", "")
        tx.put("t", "k", "1")
    late = db.transaction().begin()
    late.expect_key("t", "k", "")
    late.put("t", "k", "2")
    with pytest.raises(errors.Aborted, match="read it again"):
        late.commit()

    assert db.get("t", "k") == b"1"
    assert late.state == transactions_module.OVER


@pytest.mark.parametrize("step", ["flush", "accept", "ping", "read", "commit", "commit with operations"])
def test_one_that_its_master_does_not_have_any_more_is_aborted_and_may_be_run_again(db: Session, served: Served, step: str) -> None:
    steps = {
        "flush": lambda tx: (tx.put("t", "k", "v"), tx.flush()),
        "accept": lambda tx: tx.accept("q"),
        "ping": lambda tx: tx.ping(),
        "read": lambda tx: (tx.put("t", "k", "v"), tx.get("t", "k")),
        "commit": lambda tx: tx.commit(),
        "commit with operations": lambda tx: (tx.put("t", "k", "v"), tx.commit()),
    }
    runs = []

    def work(tx: Transaction) -> None:
        runs.append(tx)
        if len(runs) == 1:
            # As after a restart.
            served.front.transactions.open.clear()
        steps[step](tx)

    db.run_transaction(work)
    assert [tx.state for tx in runs] == [transactions_module.OVER] * 2
    assert db.transactions == set()


def test_several_messages_are_taken_in_order_and_none_when_there_is_none(db: Session) -> None:
    for name in "abc":
        db.publish("q", name)
    with db.transaction() as tx, db.transaction() as other:
        assert bodies(tx.accept("q", 2)) == [b"a", b"b"]
        assert bodies(other.accept("q", 5)) == [b"c"]
        assert (tx.accept("q"), tx.accept("q", 1)) == (None, [])
        other.rollback()
        assert bodies(tx.accept("q", 1)) == [b"c"]
    with pytest.raises(errors.InvalidRequest, match="count"), db.transaction() as tx:
        tx.accept("q", 0)
    with pytest.raises(errors.InvalidRequest, match="count"):
        db.accept("q", 0)


def test_after_the_end_nothing_can_be_done_with_it(db: Session) -> None:
    tx = db.transaction()
    with pytest.raises(errors.WrongState, match="new"):
        tx.put("t", "k", "v")
    with tx:
        tx.ping()
        tx.rollback()
    tx.rollback()
    with pytest.raises(errors.WrongState, match="over"):
        tx.put("t", "k", "v")


@pytest.mark.parametrize("session", ["лес", "a\nb"])
def test_a_session_that_no_header_can_hold_is_an_invalid_request(db: Session, session: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="cannot be sent over HTTP, as Brokerha-Session: take printable characters"):
        db.transaction(session=session).begin()


def test_closing_the_connection_rolls_back_what_is_open(db: Session, served: Served) -> None:
    db.transaction().begin().put("t", "k", "v")
    db.close()

    assert served.front.transactions.open == {}


def test_all_steps_go_to_the_node_where_it_began() -> None:
    with (
        serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as [one, two],
        brokerha.connect(f"{one.url},{two.url}", timeout=5) as db,
    ):
        with db.transaction() as tx:
            tx.put("t", "k", "v")
            tx.flush()
            one.front.read_error = errors.NotReady("no worker")
            with pytest.raises(errors.NotReady):
                db.wire.read("get", "t", {"key": b"k", "tx": tx.txid, "node": "m1"}, 0, 300).result()
            one.front.read_error = None
        assert [call[0] for call in one.front.transactions.calls] == ["begin", "operations", "commit"]
        assert two.front.transactions.calls == []


def test_the_outcome_is_asked_of_the_others_when_the_node_is_gone() -> None:
    with (
        serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as [one, two],
        brokerha.connect(f"{one.url},{two.url}", timeout=5) as db,
    ):
        tx = db.transaction().begin()
        tx.put("t", "k", "v")
        tx.flush()
        two.front.transactions.over[tx.txid] = ("aborted", 0, "its primary was lost")
        one.stop()
        with pytest.raises(errors.Aborted, match="primary was lost"):
            tx.commit()


def test_a_node_that_takes_no_writes_leaves_the_transaction_to_the_next_one() -> None:
    with serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as [one, two]:
        one.front.refusal = errors.ReadOnly("disk full")
        with brokerha.connect(f"{one.url},{two.url}", timeout=5) as db:
            with db.transaction() as tx:
                tx.put("t", "k", "v")
            assert two.front.keys == {("t", b"k"): b"v"}
            two.front.refusal = errors.ReadOnly("disk full too")
            with pytest.raises(errors.ReadOnly):
                db.transaction().begin()


# ---- lost answers


class LossyWire(FakeWire):
    """Begins, takes operations, and loses answers to commits as told; ``outcomes`` are what is asked afterwards."""

    def __init__(self, commits: list[Any], outcomes: list[Any]) -> None:
        super().__init__()
        self.commits = commits
        self.outcomes = outcomes

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        self.asked.append((what, arguments))
        if what == "outcome":
            return self.outcomes.pop(0)
        if arguments["action"] != "commit":
            return {"txid": "m1.1", "node": "m1", "count": 1, "state": "aborted"}
        end = self.commits.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def outcome(state: str, lsn: int | None = None, **more: Any) -> dict[str, Any]:
    return {"txid": "m1.1", "state": state, "lsn": lsn, "outcome": None, "reason": "", **more}


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_module, "PAUSE_S", 0.001)


LOST = errors.Unreachable("connection reset")


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("commits", "outcomes", "lsn"),
    [
        ([LOST], [outcome("applied", 7, outcome="applied")], 7),
        ([LOST, {"lsn": 8}], [outcome("open")], 8),
        ([LOST, {"lsn": 9}], [outcome("synchronised", 9)], 9),
        ([LOST, LOST, errors.NotFound("over")], [None, None, outcome("applied", 5, outcome="applied")], None),
        ([errors.OutcomeUnknown("m1.1"), {"lsn": 4}], [outcome("committing")], 4),
        ([LOST], [outcome("committed")], 0),
        ([errors.NotReady("no primary"), {"lsn": 3}], [outcome("prepared")], 3),
    ],
)
def test_after_a_lost_answer_the_outcome_is_asked_and_the_commit_sent_again(commits, outcomes, lsn) -> None:
    wire = LossyWire(list(commits), [*outcomes, outcome("applied", 5, outcome="applied")])
    with Client(wire, timeout=5).transaction() as tx:
        tx.put("t", "k", "v")

    assert tx.committed is not None
    assert tx.committed.lsn == (5 if lsn is None else lsn)


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(
    ("end", "error"),
    [
        (outcome("aborted", reason="primary lost"), errors.Aborted),
        (outcome("applied", 7, outcome="rejected", reason="conflict: primary lost"), errors.Conflict),
        (outcome("applied", 7, outcome="rejected", reason="primary lost"), errors.Rejected),
    ],
)
def test_what_turns_out_to_be_rolled_back_is_aborted(end, error) -> None:
    with pytest.raises(error, match="primary lost"), Client(LossyWire([LOST], [end])).transaction() as tx:
        tx.put("t", "k", "v")


@pytest.mark.usefixtures("no_pause")
def test_what_nobody_decides_in_time_is_unknown_by_name() -> None:
    wire = LossyWire([LOST] * 1000, [None] * 1000)
    with (
        pytest.raises(errors.OutcomeUnknown, match="do not run it again") as unknown,
        Client(wire, timeout=0.05).transaction() as tx,
    ):
        tx.put("t", "k", "v")

    assert unknown.value.txid == "m1.1"


@pytest.mark.usefixtures("no_pause")
def test_what_nobody_took_in_time_did_not_take_place() -> None:
    wire = LossyWire([errors.NotReady("no primary")] * 1000, [None] * 1000)
    with pytest.raises(errors.NotReady, match="no primary"), Client(wire, timeout=0.05).transaction() as tx:
        tx.put("t", "k", "v")


@pytest.mark.usefixtures("no_pause")
def test_a_commit_that_is_refused_at_once_is_not_asked_about() -> None:
    wire = LossyWire([errors.NotFound("m1.1 is not open: it was idle for 60 s")], [])
    with pytest.raises(errors.Aborted, match="not open any more"), Client(wire).transaction() as tx:
        tx.put("t", "k", "v")

    assert "outcome" not in [what for what, _ in wire.asked]


# ---- taking and consuming


def test_accepting_without_a_transaction_takes_for_good(db: Session, served: Served) -> None:
    for name in "abc":
        db.publish("q", name)

    one = db.accept("q")

    assert one is not None
    assert one.body == b"a"
    assert bodies(db.accept("q", 5)) == [b"b", b"c"]
    assert db.accept("q") is None
    assert db.accept("q", 2, wait=0.01) == []
    assert served.front.transactions.open == {}


def test_a_loop_over_a_queue_takes_each_message_when_its_body_ended(db: Session) -> None:
    for name in "abc":
        db.publish("q", name)
    seen = []
    for message in db.consume("q", wait=0.0):
        seen.append((message.body, len(db.queue("q"))))
        message.transaction.publish("done", message.body)

    assert seen == [(b"a", 3), (b"b", 2), (b"c", 1)]
    assert bodies(db.queue("done")) == [b"a", b"b", b"c"]


def test_an_error_in_the_body_puts_the_message_back(db: Session, served: Served) -> None:
    db.publish("q", "a")

    def fails() -> None:
        for message in db.consume("q"):
            message.transaction.put("t", "k", "v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    gc.collect()
    assert bodies(db.queue("q")) == [b"a"]
    assert served.front.transactions.open == {}
    assert db.get("t", "k") is None


def test_a_loop_ends_after_its_count(db: Session) -> None:
    for name in "abc":
        db.publish("q", name)

    assert [message.body for message in db.consume("q", count=2)] == [b"a", b"b"]
    assert bodies(db.queue("q")) == [b"c"]


def test_commits_that_always_fail_end_the_loop_with_their_reason(db: Session, monkeypatch, served: Served) -> None:
    db.publish("q", "a")

    def never(front: Any, txid: str, tx: Any, arguments: Any) -> Any:
        served.front.transactions._end(txid, "aborted", 0, "check 'stock' failed")
        raise errors.Aborted("check 'stock' failed")

    monkeypatch.setattr(served.front.transactions, "_commit", never)
    seen: list[bytes] = []
    with pytest.raises(errors.Aborted, match="stock"):
        seen.extend(message.body for message in db.consume("q"))

    assert len(seen) == 5
