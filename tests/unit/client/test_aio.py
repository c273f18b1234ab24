"""The client for asyncio: the same names, writes without threads, errors as they are raised elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from brokerha import aio, errors
from brokerha.client import Session
from brokerha.client.transactions import Transaction
from brokerha.embedded import EmbeddedCluster
from brokerha.http.app import create_app
from brokerha.http.door.server import HttpServer
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.unit.client.serving import Served


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


NOT_HERE = {"ask", "handed_in", "least_lsn", "new_txid", "note", "seconds", "take", "txid", "session"}
"""What a client is made of, and no call of a program."""
THREADS = 3
SYNCHRONOUS = {
    "pipeline",  # Writes are under way together as they are.
    "large_transaction",  # One part after the other, for as long as it takes: in a thread of its own.
    "xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "tpc_recover", "commit", "rollback",  # The DB-API has no await.
}  # fmt: skip


def calls_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")}


def test_it_has_every_call_of_a_session_and_of_a_transaction_with_the_same_arguments() -> None:
    assert calls_of(Session) - NOT_HERE - SYNCHRONOUS == calls_of(aio.AsyncSession)
    assert calls_of(Transaction) - {"begin", "prepare", "abandon"} == calls_of(aio.AsyncTransaction)
    for ours, theirs in ((aio.AsyncSession, Session), (aio.AsyncTransaction, Transaction)):
        for name in calls_of(ours) - {"accept", "close"}:
            found = list(inspect.signature(getattr(ours, name)).parameters)
            assert found == list(inspect.signature(getattr(theirs, name)).parameters), name


def test_writes_are_under_way_together_without_a_thread_for_each(served: Served) -> None:
    async def test() -> None:
        async with aio.connect(served.url, threads=1) as db:
            before = threading.active_count()
            done = await asyncio.gather(*(db.put("t", str(number), b"v") for number in range(500)))
            assert sorted(each.lsn for each in done) == list(range(1, 501))
            assert threading.active_count() - before < 10
            assert await db.get("t", "499") == b"v"

    run(test)
    assert served.network.batches < 100


def test_what_a_write_is_refused_with_is_raised(served: Served) -> None:
    async def test() -> None:
        async with aio.connect(served.url) as db:
            with pytest.raises(errors.InvalidRequest):
                await db.update("main", "INSERT DATA {")
            with pytest.raises(errors.InvalidRequest, match="timeout"):
                await db.put("t", "k", b"v", timeout=-1)
            served.front.is_silent = True
            with pytest.raises(errors.OutcomeUnknown):
                await db.put("t", "k", b"v", timeout=0.3)

    run(test)


def test_who_stops_waiting_does_not_call_a_write_back(served: Served) -> None:
    served.front.is_silent = True

    async def test() -> None:
        async with aio.connect(served.url) as db:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await db.put("t", "k", b"v")
            served.front.is_silent = False
            assert (await db.put("t", "k", b"w")).lsn > 0

    run(test)
    assert len(served.front.submitted) >= 2


def test_a_number_of_threads_that_is_none_is_refused(served: Served) -> None:
    with pytest.raises(errors.InvalidRequest, match="threads"):
        aio.connect(served.url, threads=0)


def test_a_call_after_the_end_is_told_that_the_connection_is_closed(served: Served) -> None:
    async def test() -> None:
        async with aio.connect(served.url) as db:
            assert await db.get("t", "k") is None
        for call in (lambda: db.get("t", "k"), lambda: db.put("t", "k", b"v"), db.status, lambda: db.accept("inbox")):
            with pytest.raises(errors.Unreachable, match="closed"):
                await call()

    run(test)


def test_a_call_that_waits_for_a_thread_at_the_end_is_told_so_and_its_task_is_not_cancelled() -> None:
    async def test() -> None:
        let_go = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            session = aio._InThreads(pool)
            first, second, third = (asyncio.create_task(session._run(let_go.wait)) for _ in range(3))
            await asyncio.sleep(0)
            third.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            with pytest.raises(errors.Closed, match="closed by this program"):
                await second
            with pytest.raises(asyncio.CancelledError):
                await third
            let_go.set()
            assert await first

    run(test)


def test_a_message_that_comes_after_nobody_waits_for_it_stays_in_its_queue(cluster: EmbeddedCluster, url: str) -> None:
    del cluster

    async def test() -> None:
        async with aio.connect(url) as db:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await db.accept("inbox", wait=60)
            await db.publish("inbox", b"late")
            async with asyncio.timeout(30):
                while (found := await db.accept("inbox", wait=0)) is None:
                    # The one that waited may have it in its hands for a moment.
                    assert (await db.queues(min_lsn="latest"))["inbox"]["depth"] == 1
            assert found.body == b"late"

    run(test)


def test_who_waits_for_messages_keeps_no_thread_from_other_calls(cluster: EmbeddedCluster, url: str) -> None:
    del cluster

    async def test() -> None:
        async with aio.connect(url, threads=1) as db, db.transaction() as tx:
            waiting = [asyncio.create_task(each.accept("inbox", wait=60)) for each in (db, db, tx, db)]
            async with asyncio.timeout(30):
                assert await db.get("t", "k") is None
                for number in range(len(waiting)):
                    await db.publish("inbox", str(number).encode())
                messages = await asyncio.gather(*waiting)
        assert sorted(message.body for message in messages) == [b"0", b"1", b"2", b"3"]

    run(test)


def test_reads_of_its_own_writes_transactions_and_queues_over_a_real_cluster(tmp_path: Path) -> None:
    config = ClusterConfig(
        name="aio",
        broker="embedded://aio",
        data=tmp_path,
        masters=(MasterEntry(id="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )

    async def add_one(tx: aio.AsyncTransaction) -> int:
        number = int(await tx.get("t", "n") or b"0") + 1
        await tx.put("t", "n", str(number))
        return number

    async def test(url: str) -> None:
        async with aio.connect(url, threads=THREADS) as db:
            await db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
            assert len(await db.select("main", "SELECT ?o { <urn:a> <urn:b> ?o }")) == 1
            async with db.transaction() as tx:
                await tx.put("t", "k", b"inside")
                assert await tx.get("t", "k") == b"inside"
                assert await db.get("t", "k") is None
                assert (tx.committed, tx.state, tx.node, tx.isolation) == (None, "open", "m1", "read-committed")
            assert tx.committed is not None
            assert (tx.committed.txid, tx.committed.lsn > 0, tx.state) == (tx.txid, True, "over")
            assert await db.get("t", "k") == b"inside"
            with contextlib.suppress(ZeroDivisionError):
                async with db.transaction() as tx:
                    await tx.put("t", "k", b"lost")
                    raise ZeroDivisionError
            assert await db.get("t", "k") == b"inside"
            for number in range(3):
                await db.publish("inbox", str(number))
            first = (await db.queue("inbox"))[0]
            assert [piece async for piece in db.message_body("inbox", first.id)] == [b"0"]
            async with contextlib.aclosing(db.consume("inbox", wait=5)) as messages:
                async for message in messages:
                    await message.transaction.put("seen", message.id, message.body)
                    if message.body == b"1":
                        break
            assert [row[1] for row in await db.range("seen")] == [b"0"], "what was left by a break is not taken"
            assert [message.body async for message in db.consume("inbox", count=2)] == [b"1", b"2"]
            with pytest.raises(errors.InvalidRequest, match="count is a number from 1 on"):
                await anext(db.consume("inbox", count=0))
            assert await db.accept("inbox") is None
            assert (await db.queues())["inbox"]["depth"] == 0
            # Consumers that wait for ever take no thread from others, and end when they are told to.
            waiting = [asyncio.create_task(anext(db.consume("inbox"))) for _ in range(THREADS + 1)]
            await asyncio.sleep(0)
            assert await db.get("t", "k") == b"inside"
            for task in waiting:
                task.cancel()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            for number in range(2):
                await db.publish("inbox", f"after them {number}")
            async with asyncio.timeout(30):
                # Those that were told to end may have one in their hands for a moment.
                taken: list[bytes] = []
                while len(taken) < 2:
                    taken += [message.body async for message in db.consume("inbox", wait=0)]
            assert sorted(taken) == [b"after them 0", b"after them 1"]
            assert await db.accept("inbox") is None
            await db.put("t", "n", b"0")
            sums = await asyncio.gather(*(db.run_transaction(add_one) for _ in range(2)))
            assert (sorted(sums), await db.get("t", "n", min_lsn="latest")) == ([1, 2], b"2")

    with EmbeddedCluster(config) as cluster:
        server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
        server.start()
        try:
            asyncio.run(test(server.url))
        finally:
            server.stop()


def test_a_transaction_goes_on_without_an_operation_that_was_refused(served: Served) -> None:
    async def test() -> None:
        async with aio.connect(served.url) as db:
            async with db.transaction() as tx:
                await tx.put("t", "before", b"v")
                await tx.update("main", "INSERT")
                with pytest.raises(errors.InvalidRequest, match="this update main was taken out"):
                    await tx.flush()
                await tx.put("t", "after", b"v")
            assert await db.range("t") == [(b"after", b"v"), (b"before", b"v")]

    run(test)


def test_a_step_of_a_transaction_that_nobody_waits_for_any_more_comes_before_the_next_one() -> None:
    begun, let_go, done = threading.Event(), threading.Event(), list[str]()

    class Steps:
        def put(self, *_: object) -> None:
            begun.set()
            assert let_go.wait(10)
            done.append("put")

        def rollback(self) -> None:
            done.append("rollback")

    async def test() -> None:
        steps: Any = Steps()
        with ThreadPoolExecutor(2) as pool:
            tx = aio.AsyncTransaction(steps, pool)
            put = asyncio.create_task(tx._run(steps.put))
            await asyncio.to_thread(begun.wait, 10)
            put.cancel()
            rollback = asyncio.create_task(tx._run(steps.rollback))
            await asyncio.sleep(0.05)
            let_go.set()
            await rollback

    run(test)
    assert done == ["put", "rollback"]


def test_a_transaction_whose_begin_nobody_waits_for_any_more_is_rolled_back_once_it_has_begun() -> None:
    asked, let_go, done = threading.Event(), threading.Event(), list[str]()

    class Steps:
        def __enter__(self) -> None:
            asked.set()
            assert let_go.wait(10)
            done.append("begin")

        def abandon(self) -> None:
            done.append("abandon")

    async def test() -> None:
        steps: Any = Steps()
        with ThreadPoolExecutor(2) as pool:
            begin = asyncio.create_task(aio.AsyncTransaction(steps, pool).__aenter__())
            await asyncio.to_thread(asked.wait, 10)
            begin.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begin
            let_go.set()

    run(test)
    assert done == ["begin", "abandon"]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_transaction_whose_end_nobody_waits_for_any_more_is_rolled_back_if_it_does_not_end_so(is_begun: bool) -> None:
    began, let_go, done = threading.Event(), threading.Event(), list[str]()

    def busy() -> None:
        began.set()
        assert let_go.wait(10)

    class Steps:
        def __exit__(self, *_: object) -> None:
            busy()
            done.append("commit")

        def abandon(self) -> None:
            done.append("abandon")

    async def test() -> None:
        steps: Any = Steps()
        with ThreadPoolExecutor(1) as pool:
            if not is_begun:
                pool.submit(busy)
            end = asyncio.create_task(aio.AsyncTransaction(steps, pool).__aexit__(None, None, None))
            await asyncio.to_thread(began.wait, 10)
            await asyncio.sleep(0)
            end.cancel()
            with pytest.raises(asyncio.CancelledError):
                await end
            let_go.set()

    run(test)
    assert done == (["commit", "abandon"] if is_begun else ["abandon"])


def test_a_transaction_waits_for_messages_in_short_steps_so_that_its_end_does_not_wait_for_long() -> None:
    asked: list[float] = []

    class Steps:
        def accept(self, _queue: str, count: int, *, wait: float, bodies: bool) -> list[str]:
            assert (count, bodies) == (2, True)
            asked.append(wait)
            return ["a message"] if len(asked) == 3 else []

    async def test() -> None:
        steps: Any = Steps()
        with ThreadPoolExecutor(1) as pool:
            assert await aio.AsyncTransaction(steps, pool).accept("inbox", 2, wait=60) == ["a message"]

    run(test)
    assert asked == [aio.STEP_S] * 3
