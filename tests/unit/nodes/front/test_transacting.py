"""Steps of transactions between front doors and core: checks, tickets, taking from queues, waiting, deadlines."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from zlib import crc32

import msgpack
import pytest

from brokerha.model import errors
from brokerha.model.ids import Instant
from brokerha.model.requests import TxCommand, TxReply
from brokerha.nodes.front.transacting import GRACE_MS, PAUSE_MS, SHARED_MS, SURELY_MS, Host, Transacting
from brokerha.ports.front import ReadOutcome


class Loop:
    """Runs what is handed in at once, as between two turns."""

    def call(self, action: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(action())
        except Exception as error:  # noqa: BLE001  (as the real loop does)
            done.set_exception(error)
        return done


class Bench:
    """Transacting with a queue that is a list, and a core that locks messages."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.applied = 1
        self.queue: list[str] = []
        self.locked: set[str] = set()
        self.takes: dict[int, list[str]] = {}
        self.met_in: set[str] = set()
        self.reads: list[tuple[str, str, dict[str, Any]]] = []
        self.commands: list[TxCommand] = []
        self.is_silent = False
        self.refusal: tuple[str, str] | None = None
        host = Host("m1", lambda: "m1.new", self.read, lambda: self.applied, lambda: [{"txid": "t", "xid": ""}], lambda: (1, 3), self.met)
        self.transacting = Transacting(Loop(), self, host)  # type: ignore[arg-type]

    def now(self) -> Instant:
        return Instant(self.now_ms, 0)

    def met(self) -> set[str]:
        found, self.met_in = self.met_in, set()
        return found

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], lsn: int, timeout_ms: int, future: Future[ReadOutcome]
    ) -> None:
        self.reads.append((kind, name, arguments))
        start = self.queue.index(arguments["after"]) + 1 if arguments.get("after") else 0
        rows = [(name, "text/plain", name.encode()) for name in self.queue[start : start + arguments.get("limit", 0)]]
        future.set_result(ReadOutcome("application/x-msgpack", self.applied, msgpack.packb(rows)))

    def turn(self) -> None:
        """Turns of the core, until it has nothing to do."""
        while commands := self.transacting.take_commands():
            self.commands += commands
            for command in commands if not self.is_silent else ():
                self.transacting.on_reply(self.answer(command))

    def answer(self, command: TxCommand) -> TxReply:
        if self.refusal is not None:
            return TxReply(command.ticket, command.txid, *self.refusal)
        answer: dict[str, Any] = {"count": 3, "body": b"packed", "timeout_ms": 60_000, "lsn": 7}
        if command.action == "take":
            answer = {"taken": self.take(command.arguments)}
        return TxReply(command.ticket, command.txid, answer=answer)

    def take(self, arguments: dict[str, Any]) -> list[str]:
        before = self.takes.get(arguments["first"])
        if before is not None:
            return before
        free = [name for name in arguments["candidates"] if name not in self.locked][: arguments["count"]]
        self.locked |= set(free)
        if free:
            self.takes[arguments["first"]] = free
        return free

    def accept(self, **arguments: Any) -> Future[dict[str, Any]]:
        future = self.transacting.transact("accept", "t", {"queue": "q", "first": 0, **arguments}, 60_000)
        self.turn()
        return future

    def tick(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.transacting.tick(self.now_ms)
        self.turn()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def taken(future: Future[dict[str, Any]]) -> list[str]:
    return [row[0] for row in future.result(0)["messages"]]


# ---- steps


def test_a_transaction_is_named_by_the_node_unless_the_client_does(bench: Bench) -> None:
    for txid, name in (("", "m1.new.t"), ("mine", "mine")):
        future = bench.transacting.transact("begin", txid, {})
        bench.turn()
        assert (future.result(0)["txid"], future.result(0)["node"]) == (name, "m1")


@pytest.mark.parametrize(
    ("action", "arguments", "text"),
    [
        ("dance", {}, "no step 'dance'"),
        ("begin", {"xid": "order"}, "no xid"),
        ("begin", {"timeout_ms": 86_400_001}, "timeout_ms"),
        ("begin", {"session": "s" * 129}, "session"),
        ("operations", {"operations": []}, "at least one"),
        ("operations", {"operations": "put"}, "a list of 0 to 100000, each a list"),
        ("operations", {"operations": [["update", "main", "INSERT"]]}, "MALFORMED"),
        ("operations", {"operations": [["put", "t", b"k", b"v"]], "first": -1}, "first"),
        ("accept", {}, "needs the argument 'queue', the name of a queue"),
        ("accept", {"queue": "q", "count": 0}, "count"),
        ("accept", {"queue": "q", "wait_ms": -1}, "wait_ms"),
        ("commit", {"level": "perhaps"}, "perhaps"),
        ("commit", {"copies": 0}, "copies"),
        ("commit", {"one_phase": 1}, "one_phase"),
        ("rollback", {"by_hand": "yes"}, "by_hand"),
    ],
)
def test_what_is_wrong_is_refused_before_the_loop_hears_of_it(bench: Bench, action, arguments, text) -> None:
    with pytest.raises(errors.InvalidRequest, match=text):
        bench.transacting.transact(action, "t", arguments)

    assert not bench.transacting.has_commands


def test_operations_without_a_number_go_behind_those_that_are_there(bench: Bench) -> None:
    future = bench.transacting.transact("operations", "t", {"operations": [["put", "t", b"k", b"v"]], "first": None})
    bench.turn()

    assert future.result(0)["count"] == 3
    assert [(command.action, command.arguments.get("first")) for command in bench.commands] == [
        ("pending", None),
        ("operations", 3),
    ]


@pytest.mark.parametrize("one_phase", [None, True, False])
def test_a_commit_that_does_not_say_its_phases_leaves_them_to_the_core(bench: Bench, one_phase) -> None:
    bench.transacting.transact("commit", "t", {} if one_phase is None else {"one_phase": one_phase})
    bench.turn()

    assert bench.commands[0].arguments["one_phase"] is one_phase


def test_an_error_of_the_core_is_the_error_of_the_future(bench: Bench) -> None:
    bench.refusal = ("WrongState", "t is prepared")
    future = bench.transacting.transact("commit", "t", {})
    bench.turn()

    with pytest.raises(errors.WrongState, match="t is prepared"):
        future.result(0)


@pytest.mark.parametrize(("action", "error"), [("commit", errors.OutcomeUnknown), ("ping", errors.TimedOut)])
def test_a_step_that_is_never_answered_ends_a_grace_after_its_deadline(bench: Bench, action, error) -> None:
    bench.is_silent = True
    future = bench.transacting.transact(action, "t", {}, 1000)
    bench.turn()
    bench.tick(1000 + GRACE_MS - 1)
    assert not future.done()
    bench.tick(1000)

    with pytest.raises(error):
        future.result(0)
    assert len(bench.transacting) == 0


def test_a_node_that_stops_answers_everybody(bench: Bench) -> None:
    bench.is_silent = True
    commit = bench.transacting.transact("commit", "t", {})
    bench.is_silent = False
    waiting = bench.accept(wait_ms=5000)
    bench.transacting.close("the master is stopping")

    assert isinstance(waiting.exception(0), errors.NotReady)
    assert commit.done()
    assert len(bench.transacting) == 0


def test_all_that_are_not_over_are_listed_with_their_master(bench: Bench) -> None:
    answer = bench.transacting.transact("list", "", {}).result(0)

    assert answer == {"transactions": [{"txid": "t", "xid": "", "node": "m1"}]}


# ---- reads inside


def test_a_read_inside_carries_the_operations_so_far(bench: Bench) -> None:
    bench.transacting.read("queue", "q", {"limit": 5, "tx": "t"}, 0, 1000)
    bench.turn()

    assert bench.reads == [("queue", "q", {"limit": 5, "pending": b"packed", "txid": "t"})]


def test_a_read_that_shows_no_transaction_is_refused(bench: Bench) -> None:
    future = bench.transacting.read("fingerprint", "", {"tx": "t"}, 0, 1000)
    with pytest.raises(errors.InvalidRequest, match="'fingerprint' shows no transaction"):
        future.result(0)


def test_a_read_inside_of_what_is_not_open_fails_as_the_core_says(bench: Bench) -> None:
    bench.refusal = ("NotFound", "t is not open")
    future = bench.transacting.read("size", "main", {"tx": "t"}, 0, 1000)
    bench.turn()

    assert isinstance(future.exception(0), errors.NotFound)
    assert bench.reads == []


# ---- taking


def test_the_first_messages_that_nobody_holds_are_taken_in_order(bench: Bench) -> None:
    bench.queue, bench.locked = ["a", "b", "c", "d"], {"b"}

    future = bench.accept(count=2)

    assert taken(future) == ["a", "c"]
    assert future.result(0)["count"] == 2
    assert future.result(0)["messages"][0] == ("a", "text/plain", b"a")


def test_page_after_page_is_looked_at_while_all_are_held(bench: Bench) -> None:
    bench.queue = [f"m{number}" for number in range(50)]
    bench.locked = set(bench.queue[:45])

    assert taken(bench.accept(count=2)) == ["m45", "m46"]
    assert [arguments["limit"] for _, _, arguments in bench.reads] == [8, 16, 32]


def test_a_repeated_call_gives_the_same_messages_wherever_they_stand(bench: Bench) -> None:
    bench.queue = [f"m{number}" for number in range(30)]
    bench.takes = {0: ["m20", "m25"]}
    bench.locked = {"m20", "m25"}

    assert taken(bench.accept(count=2)) == ["m20", "m25"]


def test_what_was_taken_and_is_gone_meanwhile_is_an_error(bench: Bench) -> None:
    bench.queue, bench.takes = ["a"], {0: ["gone"]}

    assert isinstance(bench.accept(count=1).exception(0), errors.NotReady)


def test_an_empty_queue_gives_nothing_at_once(bench: Bench) -> None:
    assert bench.accept().result(0)["messages"] == []


def test_who_waits_is_served_when_something_was_applied(bench: Bench) -> None:
    future = bench.accept(wait_ms=5000)
    assert bench.transacting.due_ms() == 1000 + SURELY_MS
    bench.queue, bench.applied = ["a"], 2
    assert bench.transacting.due_ms() == 1000 + PAUSE_MS
    bench.tick(PAUSE_MS - 1)
    assert not future.done()
    bench.tick(1)

    assert taken(future) == ["a"]


def test_a_queue_is_looked_at_ten_times_a_second_at_most(bench: Bench) -> None:
    bench.accept(wait_ms=5000)
    for _ in range(1000):
        bench.applied += 1
        bench.tick(1)

    assert len(bench.reads) <= 11


def test_a_message_that_comes_back_by_a_rollback_is_found_within_a_second(bench: Bench) -> None:
    bench.queue, bench.locked = ["a"], {"a"}
    future = bench.accept(wait_ms=5000)
    bench.locked = set()
    bench.tick(SURELY_MS)

    assert taken(future) == ["a"]


def test_who_waits_in_vain_gets_nothing_when_the_time_is_over(bench: Bench) -> None:
    future = bench.accept(wait_ms=300)
    bench.tick(299)
    assert not future.done()
    bench.tick(1)

    assert future.result(0)["messages"] == []
    assert bench.transacting.due_ms() is None


def test_taking_in_what_is_not_open_fails_before_the_queue_is_read(bench: Bench) -> None:
    bench.refusal = ("NotFound", "t is not open")

    assert isinstance(bench.accept(wait_ms=1000).exception(0), errors.NotFound)
    assert bench.reads == []


# ---- consumers at several masters


def test_after_two_masters_took_the_same_the_own_share_comes_first_for_a_while(bench: Bench) -> None:
    bench.queue = [f"t.{number}" for number in range(1, 31)]
    bench.met_in = {"'another'"}
    assert taken(bench.accept(count=3)) == bench.queue[:3]
    bench.met_in, bench.locked, bench.takes = {"'q'"}, set(), {}
    share = [name for name in bench.queue if crc32(name.encode()) % 3 == 1]
    assert taken(bench.accept(count=4)) == share[:4]
    # What is not of the share is taken when nothing else is left, from behind: its master comes from the front.
    bench.locked, bench.takes = set(share), {}
    others = [name for name in bench.queue if name not in share]
    assert taken(bench.accept(count=2)) == others[:-3:-1]
    bench.now_ms += SHARED_MS
    bench.locked, bench.takes = set(), {}
    assert taken(bench.accept(count=3)) == bench.queue[:3]


def test_what_prepared_transactions_take_is_not_asked_for(bench: Bench) -> None:
    bench.queue = ["t.1"]
    bench.accept()
    assert [arguments["free"] for _, _, arguments in bench.reads] == [True]
