"""What every store must do with messages that are longer than a transaction; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from brokerha.model.errors import NotFound
from brokerha.model.operations import Operation, unpack_effect
from brokerha.model.reserved import staging
from brokerha.ports.store import Store
from brokerha.stores.execution import staged
from tests.contracts.store_contract import read, rows, run
from tests.contracts.store_prepared_contract import commit as commit_prepared
from tests.contracts.store_prepared_contract import prepared
from tests.contracts.store_queue_contract import accept, follow, queue
from tests.contracts.store_staged_contract import HOUR, NAME, commit, drop, ok, stage, why


def message(first: int, last: int, size: int, name: str = "q") -> Operation:
    return ("publish-pieces", name, "video/mp4", first, last, size)


def in_pieces(store: Store, name: str = NAME) -> None:
    """A message of 5 bytes in 2 pieces, committed."""
    ok(stage(store, 1, ("piece", b"abc"), name=name))
    ok(stage(store, 2, ("piece", b"de"), name=name))
    ok(stage(store, 3, message(1, 2, 5), ("put", "t", b"k", b"v"), name=name))
    ok(commit(store, 3, name=name))


def piece(store: Store, message_id: str, number: int = 0) -> tuple[str, int, int, bytes]:
    found: tuple[str, int, int, bytes] = msgpack.unpackb(read(store, "message", "q", id=message_id, number=number), use_list=False)
    return found


def staged_parts(store: Store) -> list[int]:
    """Numbers of all rows of the reserved table."""
    return [staging.part_of(key)[1] for key, _ in rows(store, staging.TABLE)]


class StorePiecesContract:
    """Tests of messages in pieces."""

    def test_it_is_in_the_queue_from_the_commit_on_and_its_pieces_can_be_read(self, store: Store) -> None:
        run(store, [("publish", "q", "text/plain", b"before")])
        ok(stage(store, 1, ("piece", b"abc")))
        ok(stage(store, 2, ("piece", b"de")))
        ok(stage(store, 3, message(1, 2, 5)))
        assert len(queue(store)) == 1
        ok(commit(store, 3))
        (_, found) = queue(store)
        assert found[:2] == (f"{NAME}.1", "pieces:video/mp4")
        assert [piece(store, found[0], number) for number in (0, 1)] == [("video/mp4", 5, 2, b"abc"), ("video/mp4", 5, 2, b"de")]
        with pytest.raises(NotFound, match="has 2 pieces, from 0 on: there is no piece 2"):
            piece(store, found[0], 2)
        assert store.applied() == store.recompute()

    def test_a_message_that_has_its_body_itself_is_one_piece(self, store: Store) -> None:
        run(store, [("publish", "q", "text/plain", b"short")])
        assert piece(store, queue(store)[0][0]) == ("text/plain", 5, 1, b"short")
        with pytest.raises(NotFound, match=r"message 'x\.1' is not in queue 'q'"):
            piece(store, "x.1")

    def test_what_is_no_body_goes_with_the_commit_and_the_rest_with_the_message(self, store: Store) -> None:
        in_pieces(store)
        assert staged_parts(store) == [0, 1, 2]
        (result,) = run(store, [accept(f"{NAME}.1")])
        gone = [("delete", staging.TABLE, staging.part_key(NAME, number)) for number in range(3)]
        assert [tuple(change) for change in unpack_effect(result.effect)] == [accept(f"{NAME}.1"), *gone]
        assert (staged_parts(store), queue(store)) == ([], [])
        assert store.applied() == store.recompute()

    def test_another_copy_comes_to_the_same_by_the_log(self, store: Store, other: Store) -> None:
        in_pieces(store)
        follow(store, other)
        assert piece(other, f"{NAME}.1", 1) == ("video/mp4", 5, 2, b"de")
        run(store, [accept(f"{NAME}.1")])
        follow(store, other)
        assert (staged_parts(other), other.applied()) == ([], other.recompute())
        assert other.applied() == store.applied()

    def test_it_outlives_a_restart(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        in_pieces(store)
        store = reopened(store)
        assert piece(store, f"{NAME}.1")[3] == b"abc"
        ok(run(store, [accept(f"{NAME}.1")])[0])
        assert (staged_parts(store), store.applied()) == ([], store.recompute())

    def test_of_two_messages_each_takes_its_own_pieces_along(self, store: Store) -> None:
        ok(stage(store, 1, ("piece", b"a")))
        ok(stage(store, 2, ("piece", b"b")))
        ok(stage(store, 3, message(2, 2, 1), ("publish", "q", "", b"short"), message(1, 1, 1)))
        ok(commit(store, 3))
        assert [piece(store, each[0])[3] for each in queue(store)] == [b"b", b"short", b"a"]
        ok(run(store, [accept(f"{NAME}.1")])[0])
        assert (staged_parts(store), piece(store, f"{NAME}.3")[3]) == ([0, 1], b"a")
        ok(run(store, [accept(f"{NAME}.2"), accept(f"{NAME}.3")])[0])
        assert (staged_parts(store), store.applied()) == ([], store.recompute())

    def test_a_prepared_transaction_takes_it_at_its_commit(self, store: Store) -> None:
        in_pieces(store)
        prepared(store, accept(f"{NAME}.1"))
        assert piece(store, f"{NAME}.1")[3] == b"abc"
        commit_prepared(store)
        assert (staged_parts(store), queue(store)) == ([], [])
        assert store.applied() == store.recompute()

    def test_its_pieces_stay_whoever_stages_or_drops(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        in_pieces(store)
        monkeypatch.setattr(staged, "COUNT_LIMIT", 1)
        ok(stage(store, 1, ("put", "t", b"k", b"v"), name="two", timestamp=3 * HOUR))
        ok(drop(store))
        assert piece(store, f"{NAME}.1", 1)[3] == b"de"
        assert "took place already" in why(store, stage(store, 4, ("put", "t", b"k", b"v")))
        assert "took place already" in why(store, commit(store, 3))

    def test_pieces_that_are_not_there_make_no_message(self, store: Store) -> None:
        ok(stage(store, 1, ("piece", b"abc")))
        ok(stage(store, 2, ("put", "t", b"k", b"v")))
        for wrong in (message(1, 2, 3), message(1, 1, 4), message(1, 3, 3), message(4, 4, 3)):
            assert "are no pieces of" in why(store, stage(store, 3, wrong))
        ok(stage(store, 3, message(1, 1, 3), message(1, 1, 3)))
        assert "two messages have the same pieces" in why(store, commit(store, 3))
