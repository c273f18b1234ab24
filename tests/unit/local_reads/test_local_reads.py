"""Reads over the socket of a worker's folder: real sockets and threads, a front that answers as the test wants."""

from __future__ import annotations

import asyncio
import socket
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgpack
import pytest

from brokerha.local_reads.answering import AnsweringThread
from brokerha.local_reads.asking import AT_ONCE, AskingThread, LocalReads
from brokerha.local_reads.frames import HELLO, SOCKET, VERSION, address_of
from brokerha.model.errors import NotFound, NotReady, TimedOut
from brokerha.model.wire.messages import Read
from brokerha.ports.front import ReadOutcome

WAIT_S = 20.0
PATIENCE_S = 0.05
BIG = b"x" * 20_000_000


class Front:
    """Answers ``get`` at once with its key, ``later`` from a thread when it is let go, ``wrong`` and ``busy`` with errors."""

    def __init__(self) -> None:
        self.opening = 0
        self.asked: list[tuple[str, str, dict[str, Any], int, int]] = []
        self.let_go = threading.Event()
        self.held: list[Future[ReadOutcome]] = []

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: int = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        self.asked.append((kind, name, arguments, min_lsn, timeout_ms))
        future: Future[ReadOutcome] = Future()
        if kind == "later":
            self.held.append(future)
        elif kind == "wrong":
            future.set_exception(NotFound("there is no such key"))
        elif kind == "busy":
            future.set_exception(NotReady("256 reads are under way already"))
        elif kind == "long":
            future.set_exception(TimedOut("its time is over"))
        elif kind == "fault":
            future.set_exception(ZeroDivisionError("a bug"))
        elif kind == "row":
            future.set_result(ReadOutcome("text/plain", 7, b"x" * 10_000))
        elif kind == "big":
            future.set_result(ReadOutcome("text/plain", 7, BIG))
        elif kind == "bug":
            raise ZeroDivisionError
        else:
            future.set_result(ReadOutcome("application/octet-stream", 7, arguments["key"]))
        return future

    def finish(self, end: ReadOutcome | Exception) -> None:
        """Complete what is held, from a thread."""
        for future in self.held:
            if isinstance(end, Exception):
                threading.Thread(target=future.set_exception, args=(end,)).start()
            else:
                threading.Thread(target=future.set_result, args=(end,)).start()


@pytest.fixture
def front() -> Front:
    return Front()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "w1").mkdir()
    (tmp_path / "w2").mkdir()
    return tmp_path


def answering(data: Path, front: Front, node: str = "w1", cluster: str = "c") -> AnsweringThread:
    thread = AnsweringThread(data / node, cluster, node, front, lambda: front.opening)
    thread.start()
    return thread


@pytest.fixture
def worker(data: Path, front: Front) -> Iterator[AnsweringThread]:
    thread = answering(data, front)
    yield thread
    thread.close()


def wanted(kind: str = "get", key: bytes = b"k") -> Read:
    return Read("", kind, "t", {"key": key}, 3, 5000)


async def connected(reads: LocalReads, *workers: str) -> None:
    """Until each of these is asked."""
    for worker in workers:
        async with asyncio.timeout(WAIT_S):
            while worker not in reads._links:
                reads._next_try_s.clear()
                await reads.read((worker,), wanted())
                await asyncio.sleep(0.005)


def run(data: Path, test: Callable[[LocalReads], Awaitable[None]], *workers: str) -> None:
    async def whole() -> None:
        reads = LocalReads("c", data, PATIENCE_S)
        await connected(reads, *workers)
        async with asyncio.timeout(WAIT_S):
            await test(reads)
        reads.close()
        await asyncio.sleep(0)  # Connections that were cut off are told.
        assert not reads._made

    asyncio.run(whole())


async def held_by(front: Front, count: int) -> None:
    while len(front.held) < count:  # noqa: ASYNC110  (the front has threads and no loop)
        await asyncio.sleep(0.005)


def test_each_read_gets_its_own_answer_and_reaches_the_worker_as_it_was_asked(
    data: Path, front: Front, worker: AnsweringThread
) -> None:
    async def test(reads: LocalReads) -> None:
        keys = [b"%d" % number for number in range(200)]
        found = await asyncio.gather(*(reads.read(("w1",), wanted(key=key)) for key in keys))
        assert [each.body for each in found if each] == keys
        assert found[0] == ReadOutcome("application/octet-stream", 7, b"0")

    run(data, test, "w1")
    assert front.asked[-1] == ("get", "t", {"key": b"199"}, 3, 5000)


def test_answers_of_threads_come_when_they_are_there_and_do_not_hold_up_others(
    data: Path, front: Front, worker: AnsweringThread
) -> None:
    async def test(reads: LocalReads) -> None:
        later = asyncio.ensure_future(reads.read(("w1",), wanted("later")))
        await held_by(front, 1)
        assert (await reads.read(("w1",), wanted(key=b"now"))) is not None
        # Longer than the patience: a worker that is there may take its time.
        await asyncio.sleep(4 * PATIENCE_S)
        assert not later.done()
        front.finish(ReadOutcome("text/plain", 8, b"late"))
        assert await later == ReadOutcome("text/plain", 8, b"late")

    run(data, test, "w1")


def test_a_worker_that_is_there_and_never_answers_is_not_waited_for_longer_than_the_read_may_take(
    data: Path, front: Front, worker: AnsweringThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brokerha.local_reads.asking.GRACE_S", 0.05)

    async def test(reads: LocalReads) -> None:
        with pytest.raises(TimedOut, match="w1 did not answer"):
            await reads.read(("w1",), Read("", "later", "t", {"key": b"k"}, 0, 50))
        assert not reads._links["w1"].waiting
        assert await reads.read(("w1",), wanted()) is not None

    run(data, test, "w1")
    front.finish(ReadOutcome("text/plain", 8, b"too late"))


def test_what_is_wrong_everywhere_is_raised_and_anything_else_is_left_to_others(
    data: Path, front: Front, worker: AnsweringThread
) -> None:
    async def test(reads: LocalReads) -> None:
        with pytest.raises(NotFound, match="there is no such key"):
            await reads.read(("w1",), wanted("wrong"))
        with pytest.raises(TimedOut, match="over"):
            await reads.read(("w1",), wanted("long"))
        assert await reads.read(("w1",), wanted("busy")) is None
        assert await reads.read(("w1",), wanted("fault")) is None
        later = asyncio.ensure_future(reads.read(("w1",), wanted("later")))
        await held_by(front, 1)
        assert await reads.read(("w1",), wanted("bug")) is None
        front.finish(ReadOutcome("text/plain", 8, b"late"))
        assert await later is not None, "and nobody else hears of it"
        assert await reads.read(("w1",), wanted()) is not None, "and the connection goes on"

    run(data, test, "w1")


def test_a_large_answer_comes_whole(data: Path, front: Front, worker: AnsweringThread) -> None:
    async def test(reads: LocalReads) -> None:
        found = await reads.read(("w1",), wanted("big"))
        assert found is not None
        assert found.body == BIG

    run(data, test, "w1")


def test_rows_of_a_copy_that_was_distrusted_meanwhile_are_not_sent(data: Path, front: Front, worker: AnsweringThread) -> None:
    async def test(reads: LocalReads) -> None:
        later = asyncio.ensure_future(reads.read(("w1",), wanted("later")))
        await held_by(front, 1)
        front.opening += 1
        front.finish(ReadOutcome("text/plain", 8, b"rows that nobody may see"))
        assert await later is None

    run(data, test, "w1")


def test_reads_under_way_at_a_worker_that_ends_are_asked_elsewhere_and_it_is_asked_again_when_it_is_back(
    data: Path, front: Front
) -> None:
    first = answering(data, front)

    async def test(reads: LocalReads) -> None:
        later = asyncio.ensure_future(reads.read(("w1",), wanted("later")))
        await held_by(front, 1)
        first.close()
        assert await later is None
        assert await reads.read(("w1",), wanted()) is None
        second = answering(data, front)
        await connected(reads, "w1")
        assert await reads.read(("w1",), wanted()) is not None
        second.close()

    run(data, test, "w1")
    assert not (data / "w1" / SOCKET).exists()


def test_a_worker_that_is_not_there_is_not_asked(data: Path) -> None:
    async def test(reads: LocalReads) -> None:
        assert await reads.read(("w1", "w9"), wanted()) is None
        assert await reads.read((), wanted()) is None

    run(data, test)


class Impostor:
    """A socket in a worker's folder that says what the test wants, and nothing more."""

    def __init__(self, folder: Path, says: bytes) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / SOCKET))
        self._listening.listen()
        self.taken: list[socket.socket] = []
        self._says = says
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.sendall(self._says)
            self.taken.append(connection)

    def close(self) -> None:
        self._listening.close()
        for each in self.taken:
            each.close()


def test_a_worker_that_answers_nothing_any_more_is_given_up_after_twice_the_patience(data: Path) -> None:
    frozen = Impostor(data / "w1", msgpack.packb((HELLO, VERSION, "c", "w1")))

    async def test(reads: LocalReads) -> None:
        while "w1" not in reads._links:
            assert await reads.read(("w1",), wanted()) is None
            await asyncio.sleep(0.005)
        assert await reads.read(("w1",), wanted()) is None
        assert "w1" not in reads._links

    run(data, test)
    frozen.close()


@pytest.mark.parametrize(
    "says",
    [
        msgpack.packb((HELLO, VERSION + 1, "c", "w1")),
        msgpack.packb((HELLO, VERSION, "another cluster", "w1")),
        msgpack.packb((HELLO, VERSION, "c", "w2")),
        b"\xc1 no msgpack",
        msgpack.packb(7),
        b"",
    ],
)
def test_only_the_worker_itself_is_asked(data: Path, says: bytes) -> None:
    other = Impostor(data / "w1", says)

    async def test(reads: LocalReads) -> None:
        for _ in range(20):
            reads._next_try_s.clear()
            assert await reads.read(("w1",), wanted()) is None
            await asyncio.sleep(0.01)
        assert other.taken, "it was tried"
        assert not reads._links

    run(data, test)
    other.close()


@pytest.mark.parametrize(
    "sent", [b"\xc1", msgpack.packb(7), msgpack.packb((1, "get")), msgpack.packb([0, 0]), msgpack.packb((1, 2, 3, 4, 5, 6, 7))]
)
def test_a_door_that_sends_what_is_no_read_is_cut_off_and_nobody_else(
    data: Path, front: Front, worker: AnsweringThread, sent: bytes
) -> None:
    async def test(reads: LocalReads) -> None:
        reader, writer = await asyncio.open_unix_connection(str(data / "w1" / SOCKET))
        writer.write(sent)
        await reader.read()
        writer.close()
        assert await reads.read(("w1",), wanted()) is not None

    run(data, test, "w1")


def test_of_two_near_workers_the_one_with_less_to_do_is_asked(data: Path, front: Front, worker: AnsweringThread) -> None:
    other = Front()
    second = answering(data, other, "w2")

    async def test(reads: LocalReads) -> None:
        later = [asyncio.ensure_future(reads.read(("w1", "w2"), wanted("later"))) for _ in range(6)]
        await held_by(front, 3)
        await held_by(other, 3)
        assert len(front.held) == len(other.held) == 3
        for each in (front, other):
            each.finish(ReadOutcome("text/plain", 8, b""))
        await asyncio.gather(*later)

    run(data, test, "w1", "w2")
    second.close()


def test_a_near_worker_gets_no_more_than_a_few_at_once_while_there_are_others_elsewhere(
    data: Path, front: Front, worker: AnsweringThread
) -> None:
    async def test(reads: LocalReads) -> None:
        later = [asyncio.ensure_future(reads.read(("w1", "far"), wanted("later"))) for _ in range(AT_ONCE)]
        await held_by(front, AT_ONCE)
        assert await reads.read(("w1", "far"), wanted()) is None
        assert await reads.read(("w1",), wanted()) is not None, "it gets all where it is the only one"
        front.finish(ReadOutcome("text/plain", 8, b""))
        await asyncio.gather(*later)

    run(data, test, "w1")


def test_a_door_that_does_not_take_its_answers_is_read_no_further(data: Path, front: Front, worker: AnsweringThread) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(str(data / "w1" / SOCKET))
        door.settimeout(1.0)
        question = msgpack.packb((1, "row", "t", {}, 0, 5000))
        with pytest.raises(TimeoutError):
            door.sendall(question * 100_000)
        # What a socket holds, and one write more.
        assert len(front.asked) < 1000

    async def test(reads: LocalReads) -> None:
        assert await reads.read(("w1",), wanted()) is not None

    run(data, test, "w1")


def test_only_the_user_of_the_worker_may_connect_and_what_a_killed_one_left_is_replaced(data: Path, front: Front) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(data / "w1" / SOCKET))
    worker = answering(data, front)
    assert stat.S_IMODE((data / "w1" / SOCKET).stat().st_mode) == 0o600

    async def test(reads: LocalReads) -> None:
        assert await reads.read(("w1",), wanted()) is not None

    run(data, test, "w1")
    worker.close()
    worker.close()


def test_a_folder_may_have_a_longer_path_than_a_socket(tmp_path: Path, front: Front) -> None:
    data = tmp_path / ("d" * 120)
    (data / "w1").mkdir(parents=True)
    worker = answering(data, front)

    async def test(reads: LocalReads) -> None:
        assert await reads.read(("w1",), wanted()) is not None

    run(data, test, "w1")
    worker.close()
    with address_of(data / "w1") as address:
        assert len(address) < 100


def test_a_worker_whose_socket_cannot_be_made_does_without(tmp_path: Path, front: Front) -> None:
    worker = answering(tmp_path, front, "missing")
    worker.close()


# ---- without an event loop


def test_a_thread_without_an_event_loop_is_answered_by_futures(data: Path, front: Front, worker: AnsweringThread) -> None:
    near = AskingThread(LocalReads("c", data, PATIENCE_S), "m1 near reads")
    while (found := near.read(("w1",), wanted()).result(WAIT_S)) is None:
        threading.Event().wait(0.01)
    assert found == ReadOutcome("application/octet-stream", 7, b"k")
    with pytest.raises(NotFound):
        near.read(("w1",), wanted("wrong")).result(WAIT_S)
    later = near.read(("w1",), wanted("later"))
    while not front.held:
        threading.Event().wait(0.005)
    near.close()
    assert later.result(WAIT_S) is None, "who waits when it ends asks elsewhere"
    with pytest.raises(NotReady, match="stopping"):
        near.read(("w1",), wanted()).result(WAIT_S)
    near.close()


def test_one_that_was_never_asked_has_no_thread() -> None:
    before = threading.active_count()
    near = AskingThread(LocalReads("c", Path()), "m1 near reads")
    near.close()
    assert threading.active_count() == before
