"""Steps of transactions between front doors and core: checks, tickets, taking from queues, waiting, deadlines."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import msgpack
import pytest

from brokerha.model import errors
from brokerha.model.ids import Instant
from brokerha.model.operations import Put, unpack_operations
from brokerha.model.requests import APPLIED_LEVEL, Reply, TxCommand, TxReply
from brokerha.nodes.front.taking import SURELY_MS, Host
from brokerha.nodes.front.transacting import GRACE_MS, Transacting
from brokerha.nodes.loop import NodeLoop
from brokerha.ports.front import ReadOutcome
from brokerha.stores.reads.tables import QueueRange
from brokerha.stores.tables.queue_change import Message
from brokerha.transactions.locks import Locks


class Loop(NodeLoop):
    """Runs what is handed in at once, as between two turns."""

    def __init__(self) -> None:
        super().__init__("bench", lambda: None, self.serve_calls)


class Bench:
    """Transacting with a queue that is a list, a row of claims, and a core that locks messages."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.applied = 1
        self.queue: list[str] = []
        self.row: bytes | None = None
        self.locks = Locks()
        self.takes: dict[int, list[str]] = {}
        self.reads: list[tuple[str, str, dict[str, Any]]] = []
        self.submitted: list[bytes] = []
        self.commands: list[TxCommand] = []
        self.is_silent = False
        self.refusal: tuple[str, str] | None = None
        self.refused_action = ""
        host = Host(
            "m1",
            lambda: "m1.new",
            self.read,
            lambda: self.applied,
            lambda: [{"txid": "t", "xid": ""}],
            self.submit,
            lambda: self.locks,
            lambda txid, first: self.takes.get(first, ()),
            lambda masters, queue: None,
        )
        self.transacting = Transacting(Loop(), self, host)

    def now(self) -> Instant:
        return Instant(self.now_ms, 0)

    def read(self, kind: str, name: str, arguments: dict[str, Any], lsn: int, timeout_ms: int, future: Future[ReadOutcome]) -> None:
        self.reads.append((kind, name, arguments))
        body: list[Any] = []
        if "holder" in arguments:
            messages = [Message(each, "text/plain", each.encode()) for each in self.queue]
            wanted = QueueRange(name, arguments)
            body = list(wanted.claims(self.row, lambda after: iter(messages), frozenset, self.queue.__contains__))
        future.set_result(ReadOutcome("application/x-msgpack", self.applied, msgpack.packb(body)))

    def submit(self, body: bytes, timeout_ms: int) -> Future[Reply]:
        self.submitted.append(body)
        self.applied += 1
        _, change = unpack_operations(body)
        assert isinstance(change, Put)
        self.row = change.value
        future: Future[Reply] = Future()
        future.set_result(Reply(1, "claim", APPLIED_LEVEL, self.applied))
        return future

    def turn(self) -> None:
        """Turns of the core, until it has nothing to do."""
        while commands := self.transacting.take_commands():
            self.commands += commands
            for command in commands if not self.is_silent else ():
                self.transacting.on_reply(self.answer(command))

    def answer(self, command: TxCommand) -> TxReply:
        if self.refusal is not None:
            return TxReply(command.ticket, command.txid, *self.refusal)
        if command.action == self.refused_action:
            return TxReply(command.ticket, command.txid, "NotReady", "full")
        answer: dict[str, Any] = {"count": 3, "body": b"packed", "timeout_ms": 60_000, "lsn": 7}
        if command.action == "take":
            arguments = command.arguments
            taken = self.locks.take(command.txid, arguments["queue"], arguments["candidates"], arguments["count"], arguments["lsn"])
            self.takes[arguments["first"]] = taken
            answer = {"taken": taken}
        return TxReply(command.ticket, command.txid, answer=answer)

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


# ---- taking (test_taking.py has the rest)


def test_messages_are_claimed_locked_and_given(bench: Bench) -> None:
    bench.queue = ["t.1", "t.2", "t.3"]
    future = bench.accept(count=2)
    assert taken(future) == ["t.1", "t.2"]
    assert future.result(0)["count"] == 2
    assert [command.action for command in bench.commands] == ["ping", "take"]
    assert len(bench.submitted) == 1


def test_a_repeated_call_gives_the_same_messages(bench: Bench) -> None:
    bench.queue = ["t.1", "t.2", "t.3"]
    assert taken(bench.accept()) == taken(bench.accept()) == ["t.1"]


def test_who_waits_is_served_by_the_ticks_of_the_loop(bench: Bench) -> None:
    future = bench.accept(wait_ms=5000)
    assert bench.transacting.due_ms() == 1000 + SURELY_MS
    bench.queue = ["t.1"]
    bench.tick(SURELY_MS)
    assert taken(future) == ["t.1"]


def test_a_message_that_the_core_refuses_to_lock_is_its_error(bench: Bench) -> None:
    bench.queue, bench.refused_action = ["t.1"], "take"
    assert isinstance(bench.accept().exception(0), errors.NotReady)


def test_taking_in_what_is_not_open_fails_before_the_queue_is_read(bench: Bench) -> None:
    bench.refusal = ("NotFound", "t is not open")

    assert isinstance(bench.accept(wait_ms=1000).exception(0), errors.NotFound)
    assert bench.reads == []
