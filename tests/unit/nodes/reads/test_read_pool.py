"""The pool of reading threads, over a store that hangs on purpose and over the real engine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from brokerha.model import errors
from brokerha.model.wire.messages import ReadResult
from brokerha.nodes.reads.book import ReadLimits
from brokerha.nodes.reads.pool import ReadAnswers, ReadPool
from brokerha.ports.store import Applied, ReadAnswer
from tests.support.memory_store.store import MemoryStore

WAIT_S = 20.0


class Held(MemoryStore):
    """Reads of kind ``hang`` wait for the gate, whatever they are told; others answer at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.lsn = 10

    def applied(self) -> Applied:
        return Applied(self.lsn, "", 0)

    def read(self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        if kind == "hang":
            self.begun.release()
            assert self.gate.wait(WAIT_S)
        if kind == "damaged":
            raise errors.StoreDamaged("row 7 is not what was written")
        if kind == "nested":
            try:
                Path("/").write_bytes(b"")
            except OSError as error:
                raise errors.NotAcceptable("another one") from error
        if kind == "fault":
            raise ZeroDivisionError
        body = b"x" * 3_000_000 if kind == "big" else kind.encode()
        return ReadAnswer("text/plain", self.lsn, iter([body]))


@pytest.fixture
def store() -> Held:
    return Held()


def pool_of(store: Any, **limits: Any) -> ReadPool:
    return ReadPool(store, "w1", ReadLimits(**{"threads": 2, "grace_s": 0.01, "slow_s": 0.02, **limits}))


@pytest.fixture
def pool(store: Held) -> Iterator[ReadPool]:
    pool = pool_of(store)
    yield pool
    store.gate.set()
    pool.close()


def ask(pool: ReadPool, kind: str = "get", min_lsn: int = 0, timeout_ms: int = 15_000) -> Any:
    return pool.read(kind, "t", {}, min_lsn, timeout_ms)


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("it did not come true in time")


def pieces_of(answers: ReadAnswers) -> list[ReadResult]:
    messages = [outgoing.message for outgoing in answers.take()]
    return [message for message in messages if isinstance(message, ReadResult)]


def test_reads_are_answered(pool: ReadPool) -> None:
    outcomes = [future.result(WAIT_S) for future in [ask(pool) for _ in range(50)]]
    assert {(outcome.body, outcome.lsn) for outcome in outcomes} == {(b"get", 10)}


def test_a_caller_does_not_wait_for_a_thread_that_hangs(pool: ReadPool) -> None:
    with pytest.raises(errors.TimedOut, match="did not finish in its time"):
        ask(pool, "hang", timeout_ms=30).result(WAIT_S)
    assert ask(pool).result(WAIT_S).body == b"get"


def test_stuck_threads_are_replaced_up_to_the_bound(store: Held, pool: ReadPool) -> None:
    for stuck in range(1, 4):
        ask(pool, "hang", timeout_ms=30).exception(WAIT_S)
        until(lambda: pool.stuck == stuck)  # noqa: B023  (called before the loop goes on)
        assert ask(pool).result(WAIT_S).body == b"get"
        assert pool.must_restart == ""
    ask(pool, "hang", timeout_ms=30).exception(WAIT_S)
    until(lambda: pool.stuck == 4)
    assert pool.must_restart
    with pytest.raises(errors.NotReady, match="has to be started again"):
        ask(pool).result(WAIT_S)
    assert pool.metrics()["stuck_reads"] == 4
    # They come to an end after all: reads are answered again, by new threads.
    store.gate.set()
    until(lambda: pool.stuck == 0)
    assert ask(pool).result(WAIT_S).body == b"get"


def test_a_read_waits_for_its_lsn(store: Held, pool: ReadPool) -> None:
    future = ask(pool, min_lsn=12)
    assert not wait([future], 0.02).done
    store.lsn = 12
    pool.on_applied(12)
    assert future.result(WAIT_S).lsn == 12
    with pytest.raises(errors.TimedOut, match="LSN 99 was not applied in time; this copy is at 12"):
        ask(pool, min_lsn=99, timeout_ms=20).result(WAIT_S)


def test_rows_of_a_damaged_copy_are_not_returned(store: Held, pool: ReadPool) -> None:
    told: list[str] = []
    pool.on_damage = told.append
    under_way = ask(pool, "hang")
    assert store.begun.acquire(timeout=WAIT_S)
    with pytest.raises(errors.NotReady, match="damaged: row 7"):
        ask(pool, "damaged").result(WAIT_S)
    # Those under way end with the door, not with their rows; nothing new is read.
    with pytest.raises(errors.NotReady, match="damaged"):
        under_way.result(WAIT_S)
    store.gate.set()
    with pytest.raises(errors.NotReady, match="damaged"):
        ask(pool).result(WAIT_S)
    assert told == ["row 7 is not what was written"]
    # Who opens the door without having closed it has not heard of the damage yet.
    pool.open_door()
    assert "damaged" in pool.closed_reason
    pool.close_door("w1 is out of sync")
    pool.open_door()
    assert ask(pool).result(WAIT_S).body == b"get"


def test_an_answer_that_still_waits_to_be_sent_is_withdrawn_with_the_door(pool: ReadPool) -> None:
    answers = ReadAnswers(pool, lambda: None)
    future = ask(pool)
    answers.when_done("m1", "m1.1", future)
    future.result(WAIT_S)
    pool.close_door("this copy is being replaced")
    pool.open_door()
    (piece,) = pieces_of(answers)
    assert (piece.error, piece.body) == ("NotReady", b"the copy was replaced meanwhile")


def test_large_answers_go_out_in_pieces(pool: ReadPool) -> None:
    answers = ReadAnswers(pool, lambda: None)
    future = ask(pool, "big")
    answers.when_done("m1", "m1.1", future)
    future.result(WAIT_S)
    pieces = pieces_of(answers)
    assert [(piece.part, piece.more, len(piece.body)) for piece in pieces] == [
        (0, True, 1024 * 1024),
        (1, True, 1024 * 1024),
        (2, False, 3_000_000 - 2 * 1024 * 1024),
    ]


def test_a_result_over_the_limit_is_refused(store: Held) -> None:
    pool = pool_of(store, result_bytes=1_000_000)
    with pytest.raises(errors.TooLarge, match="1000000 bytes"):
        ask(pool, "big").result(WAIT_S)
    pool.close()


@pytest.mark.parametrize("kind", ["damaged", "nested", "big"])
def test_an_error_leaves_its_thread_without_what_the_engine_gave_there(store: Held, kind: str) -> None:
    """Iterators of the engine must be let go of by the thread that opened them; frames of a traceback would keep them."""
    pool = pool_of(store, result_bytes=1_000_000)

    error = ask(pool, kind).exception(WAIT_S)
    pool.close()

    assert isinstance(error, errors.BrokerhaError)
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)


def test_a_fault_of_one_read_does_not_end_the_pool(pool: ReadPool) -> None:
    for _ in range(5):
        with pytest.raises(errors.NotReady, match="ZeroDivisionError"):
            ask(pool, "fault").result(WAIT_S)
    assert ask(pool).result(WAIT_S).body == b"get"


def test_closing_waits_for_what_runs_and_fails_what_waits(store: Held) -> None:
    pool = pool_of(store)
    running, waiting = ask(pool, "hang"), ask(pool, min_lsn=99)
    assert store.begun.acquire(timeout=WAIT_S)
    threading.Timer(0.02, store.gate.set).start()
    assert pool.close(WAIT_S)
    assert running.result(0).body == b"hang"
    with pytest.raises(errors.NotReady, match="stopping"):
        waiting.result(0)
    with pytest.raises(errors.NotReady, match="stopping"):
        ask(pool).result(0)


def test_closing_does_not_wait_for_what_is_stuck(store: Held) -> None:
    pool = pool_of(store)
    ask(pool, "hang", timeout_ms=10).exception(WAIT_S)
    until(lambda: pool.stuck == 1)
    assert not pool.close(WAIT_S)
    store.gate.set()


def test_a_query_that_cannot_be_stopped_times_out_and_others_are_answered(tmp_path: Path) -> None:
    # In a process of its own: its queries would burn on until the end of all tests.
    run = [sys.executable, "-m", "tests.unit.nodes.runaway_queries", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (
        2,
        [
            "TimedOut: the read did not finish in its time: ask for less, or give it more time",
            "stuck: 1",
            "answered beside it: true",
            "TimedOut: the read did not finish in its time: ask for less, or give it more time",
            "stuck: 2",
            "NotReady: 2 reads go on although their time is over, and cannot be stopped: the worker has to be started again",
        ],
    ), done.stderr


# ---- reads in the calling thread


def ask_here(pool: ReadPool, kind: str = "get", min_lsn: int = 0, **arguments: Any) -> Any:
    return pool.read_here(kind, "t", arguments, min_lsn, 15_000)


def instead(store: Held, read: Callable[..., ReadAnswer]) -> Callable[..., ReadAnswer]:
    """Let the store answer by ``read``; returns what answered before."""
    before = store.read
    store.read = read  # type: ignore[method-assign]
    return before


def test_a_key_is_read_in_the_calling_thread_and_everything_else_in_threads(store: Held, pool: ReadPool) -> None:
    used: list[str] = []

    def noted(*arguments: Any) -> ReadAnswer:
        used.append(threading.current_thread().name)
        return before(*arguments)

    before = instead(store, noted)
    here = ask_here(pool)
    assert here.done()
    assert here.result().body == b"get"
    for future in (ask_here(pool, "size"), ask_here(pool, pending=b"")):
        future.result(WAIT_S)
    assert used == [threading.current_thread().name, "w1 read", "w1 read"]
    assert pool.metrics()["reads_total"] == 3


def test_a_key_at_an_lsn_that_is_not_applied_waits_for_it(store: Held, pool: ReadPool) -> None:
    future = ask_here(pool, min_lsn=11)
    assert not future.done()
    store.lsn = 11
    pool.on_applied(11)
    assert future.result(WAIT_S).body == b"get"


def test_after_a_slow_key_threads_read_for_a_while(store: Held, pool: ReadPool, monkeypatch: Any) -> None:
    now_s = [100.0]
    monkeypatch.setattr("brokerha.nodes.reads.pool.time.monotonic", lambda: now_s[0])
    used: list[str] = []

    def slow(*arguments: Any) -> ReadAnswer:
        used.append(threading.current_thread().name)
        now_s[0] += 0.02
        return before(*arguments)

    before = instead(store, slow)
    here = threading.current_thread().name
    for pause_s in (0.0, 0.0, 2.0):
        now_s[0] += pause_s
        ask_here(pool).result(WAIT_S)
    assert used == [here, "w1 read", here]


def test_a_closed_door_gives_no_key_and_one_that_closes_meanwhile_neither(store: Held, pool: ReadPool) -> None:
    pool.close_door("w1 is out of sync")
    with pytest.raises(errors.NotReady, match="w1 is out of sync"):
        ask_here(pool).result(0)
    assert pool.metrics()["reads_failed_total"] == 1
    pool.open_door()

    def closing(*arguments: Any) -> ReadAnswer:
        pool.close_door("w1 is out of sync")
        return before(*arguments)

    before = instead(store, closing)
    with pytest.raises(errors.NotReady, match="w1 is out of sync"):
        ask_here(pool).result(0)


def test_a_key_that_meets_damage_shuts_the_door(store: Held, pool: ReadPool) -> None:
    found: list[str] = []
    pool.on_damage = found.append
    read = store.read
    instead(store, lambda _kind, *arguments: read("damaged", *arguments))
    with pytest.raises(errors.NotReady, match="is damaged"):
        ask_here(pool).result(0)
    assert found == ["row 7 is not what was written"]
    with pytest.raises(errors.NotReady, match="is damaged"):
        ask_here(pool).result(0)


def test_a_stopping_pool_gives_no_key(store: Held, pool: ReadPool) -> None:
    pool.close()
    with pytest.raises(errors.NotReady, match="stopping"):
        ask_here(pool).result(0)
