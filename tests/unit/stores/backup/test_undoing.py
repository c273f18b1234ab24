"""What a log changed is undone by one transaction: the content of the earlier LSN, whatever came in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerha.cli.backup.restore import EarlierCopy
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import (
    Accept,
    Cleared,
    CreateRepository,
    Operation,
    Published,
    Put,
    RemoveRepository,
    pack_effect,
    pack_operations,
    unpack_effect,
)
from brokerha.stores.backup.undoing import Undoing
from brokerha.stores.tables.queue_change import Message
from tests.support.memory_store.worker_copy import MemoryCopy


def line(subject: int, value: int = 0) -> str:
    return f'<urn:s{subject}> <urn:p> "{value}" .\n'


def control(name: str, expected: str) -> Operation:
    return ("control-add", name, "key", "t", "guarded", expected)


class Copy:
    """One copy that executes transactions of its own."""

    def __init__(self, copy: Any = None) -> None:
        self.copy = copy or MemoryCopy(iter(f"copy-{n}" for n in range(9)).__next__)

    def execute(self, *transactions: list[Operation]) -> list[Any]:
        """Execute them, each as a transaction; returns their results."""
        first = self.copy.applied().lsn + 1
        items = [(f"t{lsn}", 1_000 * lsn, pack_operations(each)) for lsn, each in enumerate(transactions, first)]
        return list(self.copy.execute(first, items))

    def content(self) -> tuple[str, int]:
        applied = self.copy.applied()
        return applied.fingerprint, applied.items

    def queue(self, name: str) -> list[tuple[str, bytes]]:
        """Content types and bodies, in their order."""
        rows = msgpack.unpackb(b"".join(self.copy.read("queue", name, {"limit": 100}).pieces))
        return [(row[1], row[2]) for row in rows]


def undone(before: Copy, results: list[Any]) -> list[Operation]:
    """The transaction that leads back to ``before``."""
    undoing = Undoing()
    for result in results:
        undoing.take(result.effect)
    return undoing.operations(EarlierCopy(before.copy))


def both(*transactions: list[Operation]) -> tuple[Copy, Copy]:
    """Two copies with the same beginning."""
    copies = Copy(), Copy()
    for copy in copies:
        assert all(result.outcome == "applied" for result in copy.execute(*transactions))
    return copies


BEGINNING: list[list[Operation]] = [
    [("create-repository", "old"), ("add", "main", line(1)), ("add", "old", line(2) + "_:kept <urn:p> _:too .\n")],
    [("put", "t", b"a", b"1"), ("put", "t", b"guarded", b"1"), control("stays", "present"), control("goes", ">= 0")],
    [("publish", "q", "text/plain", b"m1"), ("publish", "q", "text/plain", b"m2"), ("publish", "q", "text/plain", b"m3")],
]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param([("add", "main", line(3)), ("remove", "main", line(1))], id="quads"),
        pytest.param([("put", "t", b"a", b"2"), ("put", "t", b"new", b"1"), ("delete", "t", b"guarded-not")], id="keys"),
        pytest.param([("delete", "t", b"a")], id="a key that went"),
        pytest.param([("create-repository", "new"), ("add", "new", line(9))], id="a repository that came"),
        pytest.param([("remove-repository", "old")], id="a repository that went, with blank nodes"),
        pytest.param([("remove-repository", "old"), ("create-repository", "old"), ("add", "old", line(7))], id="one made anew"),
        pytest.param([control("more", "= 1"), ("control-remove", "goes")], id="checks"),
        pytest.param([("control-remove", "goes"), control("goes", "<= 5")], id="a check that changed"),
    ],
)  # fmt: skip
def test_the_content_is_the_same_again(change: list[Operation]) -> None:
    before, now = both(*BEGINNING)
    (result,) = now.execute(change)
    assert result.outcome == "applied"
    operations = undone(before, [result])
    assert now.execute(operations)[0].outcome == "applied"
    assert now.content() == before.content()


def test_messages_that_came_go() -> None:
    before, now = both(*BEGINNING)
    operations = undone(before, now.execute([("publish", "q", "text/plain", b"m4"), ("publish", "other", "", b"x")]))
    assert operations == [("accept", "other", "t4.2"), ("accept", "q", "t4.1")]
    now.execute(operations)
    assert (now.queue("q"), now.queue("other")) == (before.queue("q"), [])


def test_messages_that_were_taken_come_back_in_their_order_with_new_ids() -> None:
    before, now = both(*BEGINNING)
    results = now.execute([("accept", "q", "t3.2"), ("publish", "q", "text/plain", b"m4")])
    operations = undone(before, results)
    # What stands before the first one that was taken stays
    assert operations[:2] == [("accept", "q", "t3.3"), ("accept", "q", "t4.2")]
    now.execute(operations)
    assert now.queue("q") == before.queue("q") == [("text/plain", body) for body in (b"m1", b"m2", b"m3")]


def test_what_is_the_same_again_is_left_out() -> None:
    before, now = both(*BEGINNING)
    results = now.execute(
        [("put", "t", b"a", b"2"), ("add", "main", line(5)), ("create-repository", "new"), ("publish", "q", "", b"x")],
        [("put", "t", b"a", b"1"), ("remove", "main", line(5)), ("remove-repository", "new"), ("accept", "q", "t4.4")],
    )
    assert undone(before, results) == []


def test_what_went_without_a_name_does_not_come_back_unless_it_was_not_there_before() -> None:
    undoing = Undoing()
    undoing.take(pack_effect([CreateRepository("create-repository", "new")]))
    undoing.take(pack_effect([Cleared("clear", "new", 20_000), RemoveRepository("remove-repository", "new")]))
    before, _ = both(*BEGINNING)
    assert undoing.operations(EarlierCopy(before.copy)) == []
    undoing.take(pack_effect([Cleared("clear", "main", 30_000)]))
    with pytest.raises(
        InvalidRequest, match="'main' was emptied after that LSN, and the log does not name its 30000 quads: stop all nodes"
    ):
        undoing.operations(EarlierCopy(before.copy))


def test_what_is_no_content_stays_and_is_named() -> None:
    undoing = Undoing()
    undoing.take(
        pack_effect([Put("put", "urn:brokerha:settings", b"window", b"{}"), Put("put", "urn:brokerha:snapshots", b"s", b"")])
    )

    class Nothing:
        def value(self, table: str, key: bytes) -> bytes | None:
            raise AssertionError(table, key)

        def messages(self, queue: str) -> list[Message]:
            raise AssertionError(queue)

        def checks(self) -> Mapping[str, Operation]:
            raise AssertionError

    assert undoing.operations(Nothing()) == []
    assert undoing.kept_tables == {"urn:brokerha:settings", "urn:brokerha:snapshots"}


REPOSITORIES = st.sampled_from(["main", "old", "new"])
NUMBERS = st.integers(0, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), REPOSITORIES, NUMBERS.map(line)),
    st.tuples(st.just("remove"), REPOSITORIES, NUMBERS.map(line)),
    st.tuples(st.sampled_from(["create-repository", "remove-repository"]), REPOSITORIES),
    st.tuples(st.just("put"), st.just("t"), NUMBERS.map(lambda n: b"k%d" % n), NUMBERS.map(lambda n: b"%d" % n)),
    st.tuples(st.just("delete"), st.just("t"), NUMBERS.map(lambda n: b"k%d" % n)),
    st.tuples(st.just("publish"), st.just("q"), st.just("text/plain"), NUMBERS.map(lambda n: b"%d" % n)),
    st.tuples(st.just("accept"), st.just("q"), st.tuples(st.integers(3, 9), st.integers(1, 3)).map(lambda at: f"t{at[0]}.{at[1]}")),
    st.tuples(st.just("control-remove"), st.sampled_from(["stays", "goes", "c"])),
    NUMBERS.map(lambda n: control("c", f"!= {n}")),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=8))
def test_any_history_is_undone_by_one_transaction(transactions: list[list[Operation]]) -> None:
    before, now = both(*BEGINNING)
    results = now.execute(*transactions)
    operations = undone(before, results)
    if operations:
        (result,) = now.execute(operations)
        assert result.outcome == "applied", (result.reason, operations)
    assert now.queue("q") == before.queue("q")
    # The fingerprint has the numbers of messages that a queue ever had.
    if not any(isinstance(change, (Published, Accept)) for result in results for change in unpack_effect(result.effect)):
        assert now.content() == before.content()
