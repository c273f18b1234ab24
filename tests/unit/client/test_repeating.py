"""What the client repeats by itself: work without an effect that can succeed, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import brokerha
from brokerha import aio
from brokerha.client import Client
from brokerha.client.transactions import Transaction
from brokerha.model import errors
from brokerha.model.etags import etag_of
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import CUT_BEFORE, GATEWAY, Served

AWAY = [
    errors.Unreachable("refused"),
    errors.TimedOut("the master is stopping"),
    errors.NotReady("no majority"),
    errors.NotPrimary("stands by"),
]
FINAL = [
    errors.Rejected("check 'stock' failed: expected >= 0, found -9"),
    errors.ReadOnly("disk full"),
    errors.OutcomeUnknown("m1.1"),
    errors.InvalidRequest("no such step"),
    errors.Closed(),
]


class Troubled(FakeWire):
    """Each step of this action raises the next of the errors, until there are none."""

    def __init__(self, action: str, problems: list[errors.BrokerhaError]) -> None:
        super().__init__()
        self.action = action
        self.problems = problems

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        if what == "outcome":
            return None
        self.asked.append((arguments["action"], arguments))
        if arguments["action"] == self.action and self.problems:
            raise self.problems.pop(0)
        return {"txid": "m1.1", "node": "m1", "count": 1, "state": "aborted", "lsn": 3, "messages": [("m", "text/plain", b"a")]}

    def count(self) -> int:
        return [action for action, _ in self.asked].count(self.action)


def work(tx: Transaction) -> str:
    tx.put("t", "k", "v")
    return "done"


def run(wire: Troubled) -> str:
    return Client(wire, timeout=20).run_transaction(work)


def run_async(wire: Troubled) -> str:
    async def steps(tx: aio.AsyncTransaction) -> str:
        await tx.put("t", "k", "v")
        return "done"

    async def main() -> str:
        async with aio.AsyncSession(brokerha.Session(wire, 20)) as db:
            return await db.run_transaction(steps)

    return asyncio.run(main())


def consume(wire: Troubled) -> str:
    for message in Client(wire, timeout=20).consume("q", count=1):
        message.transaction.put("t", "k", "v")
    return "done"


def accept(wire: Troubled) -> str:
    return "done" if Client(wire, timeout=20).accept("q") else ""


both = pytest.mark.parametrize("run_it", [run, run_async, consume, accept])


@both
@pytest.mark.parametrize("action", ["begin", "operations", "accept"])
def test_while_nobody_answers_nothing_has_taken_effect_and_it_is_run_again(run_it, action: str) -> None:
    wire = Troubled(action, list(AWAY))
    assert run_it(wire) == "done"
    assert not wire.problems or wire.count() == 0


@both
def test_after_a_conflict_or_a_loss_it_is_run_again(run_it) -> None:
    wire = Troubled(
        "commit", [errors.Conflict("conflict: key 'k'"), errors.Aborted("its primary was lost"), errors.NotFound("over")]
    )
    assert run_it(wire) == "done"
    assert wire.count() == 4


@both
@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("action", ["begin", "commit"])
def test_what_can_never_succeed_or_may_have_happened_is_not_run_again(run_it, action: str, error: errors.BrokerhaError) -> None:
    wire = Troubled(action, [type(error)(str(error))])
    if isinstance(error, errors.OutcomeUnknown) and action == "commit":
        # The commit itself asks for the outcome, and commits the same transaction again.
        assert run_it(wire) == "done"
        assert wire.count() == 2
        return
    with pytest.raises(type(error)):
        run_it(wire)
    assert wire.count() == 1


@pytest.mark.parametrize("run_it", [run, consume, accept])
def test_it_ends_with_the_last_error_after_the_timeout(run_it, monkeypatch) -> None:
    monkeypatch.setattr(brokerha.Client, "seconds", lambda *_: 0.01)
    monkeypatch.setattr("brokerha.client.transactions.PAUSE_S", 0.0)
    wire = Troubled("begin", [errors.Unreachable(f"refused {number}") for number in range(10_000)])
    with pytest.raises(errors.Unreachable, match="refused"):
        run_it(wire)


def test_a_failed_check_is_rejected_in_every_way_to_write(served: Served) -> None:
    runs = []

    def into_nowhere(tx: Transaction) -> None:
        runs.append(tx)
        tx.update("nowhere", "CLEAR ALL")

    with brokerha.connect(served.url) as db:
        for write in (lambda: db.update("nowhere", "CLEAR ALL"), lambda: db.run_transaction(into_nowhere)):
            with pytest.raises(errors.Rejected, match="does not exist") as raised:
                write()
            assert not isinstance(raised.value, errors.Aborted)
    assert len(runs) == 1


def test_a_begin_over_http_waits_for_a_node_that_comes_back(served: Served) -> None:
    served.network.faults = [CUT_BEFORE, GATEWAY, CUT_BEFORE]
    with brokerha.connect(served.url, timeout=20) as db, db.transaction() as tx:
        tx.put("t", "k", "v")
    assert served.front.keys == {("t", b"k"): b"v"}


def test_a_failed_expectation_is_a_conflict_in_every_way_to_write(served: Served) -> None:
    expected = [("expect-key", "t", b"k", etag_of(b"another")), ("put", "t", b"k", b"v")]

    def in_steps(db: brokerha.Session) -> None:
        with db.transaction() as tx:
            tx.write(expected)

    with brokerha.connect(served.url) as db:
        for write in (lambda: db.write(expected), lambda: in_steps(db)):
            with pytest.raises(errors.Conflict, match="read it again") as raised:
                write()
            assert isinstance(raised.value, errors.Rejected)
            assert isinstance(raised.value, errors.Aborted)
            assert raised.value.txid


def test_a_wait_that_is_negative_is_refused_and_does_not_mean_for_ever_or_not_at_all(served: Served) -> None:
    async def awaited() -> None:
        async with aio.connect(served.url) as db:
            for call in (lambda: db.accept("q", wait=-1), lambda: anext(db.consume("q", wait=-1))):
                with pytest.raises(errors.InvalidRequest, match="wait is a number of seconds from 0 on, not -1"):
                    await call()
            async with db.transaction() as tx:
                with pytest.raises(errors.InvalidRequest, match="wait is"):
                    await tx.accept("q", wait=-1)

    with brokerha.connect(served.url) as db, db.transaction() as tx:
        for call in (lambda: db.accept("q", wait=-1), lambda: next(db.consume("q", wait=-1)), lambda: tx.accept("q", wait=-1)):
            with pytest.raises(errors.InvalidRequest, match="wait is a number of seconds from 0 on, not -1"):
                call()
    asyncio.run(awaited())
