"""How a large transaction is cut into parts: what is handed over, without a cluster."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import pytest

from brokerha.client import large
from brokerha.client.calls import Calls
from brokerha.client.large import LargeTransaction
from brokerha.client.outcomes import Written
from brokerha.model.errors import WrongState
from brokerha.model.operations import Operation


class Writer:
    """Keeps the operations that are staged, part by part."""

    def __init__(self) -> None:
        self.parts: list[list[Operation]] = []

    def write(self, operations: Sequence[Operation], **_options: Any) -> Written:
        self.parts.append(list(operations[1:]))
        return Written("tx", 1, "applied")


class Pipe(io.RawIOBase):
    """Gives less than is asked for, as a pipe or a socket does."""

    def __init__(self, content: bytes) -> None:
        self._left = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._left.readinto(memoryview(buffer)[:700])


def cut(fill: Any) -> list[list[Operation]]:
    """The parts of a transaction that ``fill`` filled."""
    writer = Writer()
    transaction = LargeTransaction(cast("Calls", writer))
    fill(transaction)
    transaction.commit()
    return writer.parts[:-1]


def test_a_message_is_whole_also_when_its_file_gives_it_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WHOLE_BYTES", 2000)
    monkeypatch.setattr(large, "PIECE_BYTES", 1000)
    short, long = bytes(range(250)) * 6, bytes(range(250)) * 14
    assert cut(lambda tx: tx.publish("q", Pipe(short))) == [[("publish", "q", "application/octet-stream", short)]]
    *pieces, last = cut(lambda tx: tx.publish("q", Pipe(long)))
    assert [len(piece) for [(_, piece)] in pieces] == [1000, 1000, 1000, 500]
    assert b"".join(piece for [(_, piece)] in pieces) == long
    assert last == [("publish-pieces", "q", "application/octet-stream", 1, 4, 3500)]


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b"])
def test_quads_are_cut_at_ends_of_lines_and_at_nothing_that_a_literal_may_hold(
    monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    monkeypatch.setattr(large, "PART_BYTES", 100)
    line = f'<urn:s> <urn:p> "{character * 30}" .'
    for end in ("\n", "\r\n", "\r"):
        parts = cut(lambda tx, end=end: tx.add("main", (line + end) * 9))
        assert len(parts) > 2
        assert {row for [(_, _, text)] in parts for row in text.split(end)} == {line, ""}


@pytest.mark.parametrize("end", [lambda tx: tx.commit(), lambda tx: tx.drop()])
def test_what_comes_after_the_end_is_refused_and_not_kept_for_nothing(end: Any) -> None:
    transaction = LargeTransaction(cast("Calls", Writer()))
    transaction.put("t", "k", "v")
    end(transaction)
    with pytest.raises(WrongState, match="is over"):
        transaction.put("t", "late", "v")
    with pytest.raises(WrongState, match="is over"):
        transaction.publish("q", b"late")
