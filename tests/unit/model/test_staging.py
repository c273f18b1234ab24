"""Large transactions: which operations they are made of, and what the log says of them."""

from __future__ import annotations

import pytest

from brokerha.model import unfolding
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import Delete, Operation, Published, Put, QuadsChanged, check_operations
from brokerha.model.reserved import about
from brokerha.model.reserved.staging import Part, packed_part, part_in, part_key, part_of

STAGE: Operation = ("stage", "big", 1)
COMMIT: Operation = ("commit-staged", "big", 2)
PUT: Operation = ("put", "t", b"k", b"v")
ORDER = "stage comes first in a transaction, drop-staged alone, and commit-staged last, after expectations only"


@pytest.mark.parametrize(
    "operations",
    [
        [STAGE, PUT, ("delete", "t", b"k"), ("add", "main", ""), ("remove", "main", ""), ("publish", "q", "", b"")],
        [STAGE, PUT, ("by", "ann")],
        [COMMIT],
        [("expect-key", "t", b"k", ""), ("expect-since", "table", "t", 1), COMMIT, ("by", "ann")],
        [("drop-staged", "big")],
    ],
)
def test_what_a_large_transaction_is_made_of(operations: list[Operation]) -> None:
    check_operations(operations)


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        ([STAGE], "stage comes with what is to be staged"),
        (
            [STAGE, PUT, ("accept", "q", "tx.1")],
            "a part of a large transaction has add, clear, delete, piece, publish, publish-pieces, put, remove, and not accept",
        ),
        (
            [STAGE, ("put", about.TABLE, about.setting_key("main", about.TITLE), b"x")],
            "table urn:brokerha:repositories is brokerha's own, and no part",
        ),
        ([STAGE, ("piece", b"x"), PUT], "a piece of a message is a part for itself"),
        ([STAGE, ("piece", b"")], "a piece of a message has 1 byte or more"),
        ([("piece", b"x")], "piece is an operation of a part of a large transaction"),
        ([STAGE, ("publish-pieces", "q", "", 2, 1, 1)], "publish-pieces names parts, first and last"),
        ([STAGE, ("publish-pieces", "", "", 1, 1, 1)], "a queue name has 1 to"),
        ([("publish", "q", "pieces:text/plain", b"x")], "no content type begins with 'pieces:'"),
        ([PUT, STAGE], ORDER),
        ([PUT, COMMIT], ORDER),
        ([COMMIT, PUT], ORDER),
        ([("drop-staged", "big"), PUT], ORDER),
        ([("stage", "two words", 1), PUT], "the name of a large transaction has 1 to 128 visible ASCII characters"),
        ([("stage", "big", 0), PUT], "a large transaction has 1 to 100000 parts, not 0"),
        ([("commit-staged", "big", 100_001)], "a large transaction has 1 to 100000 parts, not 100001"),
        ([("put", "urn:brokerha:staged", b"k", b"v")], "brokerha's own: it holds what is staged"),
    ],
)
def test_what_it_cannot_be_is_said_before_anything_is_stored(operations: list[Operation], problem: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_operations(operations)
    assert problem in str(raised.value)


def test_a_part_is_one_row() -> None:
    part = Part(7, 1_000_000, 2, "ann", (("put", "t", b"k", b"v"), ("add", "main", "<urn:a> <urn:b> <urn:c> .\n")))
    assert part_in(packed_part(part)) == part
    assert part_of(part_key("big\x7f", 258)) == ("big\x7f", 258)


def test_its_changes_are_those_that_were_asked_for_in_order() -> None:
    lines = ["<urn:a> <urn:b> <urn:c>", '<urn:a> <urn:b> "x ."']
    text = unfolding.text_of(lines)
    operations: tuple[Operation, ...] = (
        ("publish", "q", "text/plain", b"1"), PUT, ("add", "main", text), ("remove", "main", text), ("delete", "t", b"k"), ("publish", "q", "", b"2"),
    )  # fmt: skip
    row = packed_part(Part(7, 1_000_000, 7, "", operations))
    assert list(unfolding.changes_in("big", row, 3)) == [
        Published("publish", "q", "big.4", "text/plain", b"1"),
        Put("put", "t", b"k", b"v"),
        QuadsChanged("quads", "main", (), tuple(lines)),
        QuadsChanged("quads", "main", tuple(lines), ()),
        Delete("delete", "t", b"k"),
        Published("publish", "q", "big.5", "", b"2"),
    ]
    assert [change for change in unfolding.changes_in("big", row, 0, with_quads=False) if isinstance(change, QuadsChanged)] == [
        QuadsChanged("quads", "main", (), ()), QuadsChanged("quads", "main", (), ()),
    ]  # fmt: skip
