"""Rows say all that an entry says, name items as copies do, and come back as the entries that they were."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from brokerha.model.control import Check
from brokerha.model.errors import ProtocolError
from brokerha.pipeline import rows
from brokerha.pipeline.entries import LogEntry, entry_hash
from brokerha.pipeline.rows import SCHEMA, batches_of, entries_of, table_of
from brokerha.stores.comparing.fingerprint import control_digest, key_digest, quads_digest, repository_digest
from brokerha.stores.comparing.items import check_item, key_item, message_item
from tests.unit.pipeline.random_log import random_entries


def entry(lsn: int, *changes: tuple[Any, ...], reason: str = "") -> LogEntry:
    outcome = "rejected" if reason else "applied"
    effect = msgpack.packb(changes) if changes else b""
    return LogEntry(lsn, f"t{lsn}", "m1", 1_000_000 + lsn, 1, outcome, reason, effect, bytes([1]) + bytes(16))


def rows_of(*changes: tuple[Any, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of([entry(1, *changes)]).to_pylist()
    return found


def halves(digest: bytes | int) -> tuple[int, int]:
    number = digest.to_bytes(16, "big") if isinstance(digest, int) else digest
    return int.from_bytes(number[:8], "big", signed=True), int.from_bytes(number[8:], "big", signed=True)


def item_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["item_high"], row["item_low"]


def digest_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["digest_high"], row["digest_low"]


@pytest.mark.parametrize("seed", range(4))
def test_the_entries_of_the_rows_are_the_entries(seed):
    entries = random_entries(seed, 150)
    table = table_of(entries)
    assert table.schema == SCHEMA
    assert entries_of(table) == entries
    hashes = dict(zip(table["lsn"].to_pylist(), table["entry_hash"].to_pylist(), strict=True))
    assert hashes == {each.lsn: entry_hash(each) for each in entries}


def test_the_table_of_columns_in_the_documentation_is_the_schema():
    named = re.findall(r"^\| (`.*?) \| ([a-z0-9]+)", rows.__doc__ or "", re.MULTILINE)
    columns = [(name, kind) for names, kind in named for name in re.findall(r"`(\w+)`", names)]
    assert [name for name, _ in columns] == SCHEMA.names
    kinds = {"timestamp": "timestamp[us, tz=UTC]"}
    assert [kinds.get(kind, kind) for _, kind in columns] == [str(field.type) for field in SCHEMA]


@pytest.mark.parametrize(
    ("line", "terms"),
    [
        ("<urn:a> <urn:p> <urn:b>", ("<urn:a>", "<urn:p>", "<urn:b>", None)),
        ("<urn:a> <urn:p> <urn:b> <urn:g>", ("<urn:a>", "<urn:p>", "<urn:b>", "<urn:g>")),
        ("_:a <urn:p> _:b _:g", ("_:a", "<urn:p>", "_:b", "_:g")),
        ('<urn:a> <urn:p> "two words"', ("<urn:a>", "<urn:p>", '"two words"', None)),
        ('<urn:a> <urn:p> "in <here"', ("<urn:a>", "<urn:p>", '"in <here"', None)),
        ('<urn:a> <urn:p> "a _:b"@en', ("<urn:a>", "<urn:p>", '"a _:b"@en', None)),
        ('<urn:a> <urn:p> "a <b"^^<urn:t>', ("<urn:a>", "<urn:p>", '"a <b"^^<urn:t>', None)),
        ('<urn:a> <urn:p> "a <b"^^<urn:t> <urn:g>', ("<urn:a>", "<urn:p>", '"a <b"^^<urn:t>', "<urn:g>")),
        ('<urn:a> <urn:p> "say \\"<x> " _:g', ("<urn:a>", "<urn:p>", '"say \\"<x> "', "_:g")),
        ("<urn:a> <urn:p> <<( <urn:b> <urn:q> _:c )>>", ("<urn:a>", "<urn:p>", "<<( <urn:b> <urn:q> _:c )>>", None)),
        ('_:a <urn:p> <<( <urn:b> <urn:q> "c d" )>> <urn:g>', ("_:a", "<urn:p>", '<<( <urn:b> <urn:q> "c d" )>>', "<urn:g>")),
    ],
)  # fmt: skip
def test_a_quad_is_told_apart_into_its_terms(line, terms):
    (row,) = rows_of(("quads", "main", [], [line]))
    assert (row["subject"], row["predicate"], row["object"], row["graph"]) == terms
    assert entries_of(table_of([entry(1, ("quads", "main", [], [line]))])) == [entry(1, ("quads", "main", [], [line]))]


def test_a_change_of_several_quads_has_a_row_for_each_the_removed_ones_first():
    lines = [f"<urn:a> <urn:p> <urn:o{n}>" for n in range(4)]
    found = rows_of(("put", "t", b"k", b"v"), ("quads", "r", lines[:1], lines[1:]))
    assert [(row["operation"], row["part"], row["kind"], row["tombstone"]) for row in found] == [
        (1, 0, "put", False), (2, 0, "remove", True), (2, 1, "add", False), (2, 2, "add", False), (2, 3, "add", False),
    ]  # fmt: skip
    assert [item_of(row) for row in found[1:]] == [halves(quads_digest("r", [line])) for line in lines]
    assert [digest_of(row) for row in found[1:]] == [item_of(row) for row in found[1:]]


def test_items_and_digests_are_those_that_copies_have():
    check = Check("stock", "key", "items", "sku-1", ">= 0")
    found = rows_of(
        ("put", "t", b"k", b"v"), ("delete", "t", b"k"), ("publish", "q", "t1.3", "text/plain", b"body"), ("accept", "q", "t0.1"),
        ("create-repository", "r"), ("remove-repository", "r"), ("control-add", *check), ("control-remove", "stock"),
    )  # fmt: skip
    nothing = (0, 0)
    repository = halves(repository_digest("r"))
    named = [(row["store"], row["name"], row["kind"], row["key"], row["tombstone"]) for row in found]
    assert named == [
        ("table", "t", "put", b"k", False), ("table", "t", "delete", b"k", True),
        ("queue", "q", "publish", b"t1.3", False), ("queue", "q", "accept", b"t0.1", True),
        ("graph", "r", "create", None, False), ("graph", "r", "drop", None, True),
        ("control", "stock", "check", None, False), ("control", "stock", "uncheck", None, True),
    ]  # fmt: skip
    assert [(item_of(row), digest_of(row)) for row in found] == [
        (halves(key_item(b"t\0k")), halves(key_digest(b"t\0k", b"v"))), (halves(key_item(b"t\0k")), nothing),
        (halves(message_item("q", "t1.3")), nothing), (halves(message_item("q", "t0.1")), nothing),
        (repository, repository), (repository, repository),
        (halves(check_item("stock")), halves(control_digest(check))), (halves(check_item("stock")), nothing),
    ]  # fmt: skip
    assert (found[2]["value"], found[2]["content_type"]) == (b"body", "text/plain")
    assert msgpack.unpackb(found[6]["value"]) == list(check[1:])


def test_an_entry_that_changed_nothing_has_one_row():
    empty, rejected = entry(1), entry(2, reason="no such repository")
    table = table_of([empty, rejected])
    assert table["operation"].to_pylist() == [0, 0]
    assert table["store"].to_pylist() == [None, None]
    assert table["reason"].to_pylist() == ["", "no such repository"]
    assert entries_of(table) == [empty, rejected]


def test_what_a_source_does_not_know_is_null():
    unknown = entry(1)._replace(origin="", epoch=0)
    table = table_of([unknown])
    assert (table["origin"].to_pylist(), table["epoch"].to_pylist()) == ([None], [None])
    assert entries_of(table) == [unknown]


def test_no_entries_have_no_rows():
    assert table_of([]) == SCHEMA.empty_table()
    assert entries_of(table_of([])) == []
    assert list(batches_of([])) == []


def test_batches_end_between_entries():
    entries = random_entries(7, 60)
    batches = list(batches_of(entries, rows=7))
    assert pa.Table.from_batches(batches) == table_of(entries).combine_chunks()
    for before, after in itertools.pairwise(batches):
        assert before["lsn"][-1].as_py() + 1 == after["lsn"][0].as_py()


def test_a_batch_ends_with_the_entry_that_makes_it_large(monkeypatch):
    monkeypatch.setattr(rows, "BATCH_BYTES", 1000)
    entries = [entry(lsn, ("put", "t", b"k", bytes(400))) for lsn in range(1, 8)]
    assert [batch.num_rows for batch in batches_of(entries)] == [3, 3, 1]


@pytest.mark.parametrize("effect", [b"\xc1", msgpack.packb([["merge", "t"]]), msgpack.packb([["put", "t"]]), b"\x91\x01", b"\x90"])
def test_an_effect_of_another_version_is_an_error_that_names_its_lsn(effect):
    with pytest.raises(ProtocolError, match="the effect of LSN 9"):
        table_of([entry(9)._replace(effect=effect)])


def changed(table: pa.Table, column: str, place: int, value: Any) -> pa.Table:
    values = table[column].to_pylist()
    values[place] = value
    return table.set_column(SCHEMA.names.index(column), SCHEMA.field(column), pa.array(values, SCHEMA.field(column).type))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", b"another"),
        ("key", b"another"),
        ("name", "another"),
        ("kind", "delete"),
        ("txid", "another"),
        ("reason", "another"),
    ],
)
def test_a_row_that_was_changed_has_another_entry_than_its_hash_says(column, value):
    table = changed(table_of([entry(1, ("put", "t", b"k", b"v"))]), column, 0, value)
    (found,) = entries_of(table)
    assert entry_hash(found) != table["entry_hash"][0].as_py()


@pytest.mark.parametrize(("column", "value"), [("kind", "merge"), ("kind", None), ("operation", 5)])
def test_rows_that_no_entry_has_are_an_error_that_names_their_lsn(column, value):
    table = table_of([entry(4, ("put", "t", b"k", b"v"), ("delete", "t", b"j"))])
    with pytest.raises(ProtocolError, match="the rows of LSN 4"):
        entries_of(changed(table, column, 1, value))
