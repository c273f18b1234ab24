"""The sink without Spark: which options and columns it takes, what rows become, and how one partition is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from brokerha.client import Client
from brokerha.model.errors import ConfigurationError, InvalidRequest, NotReady, OutcomeUnknown, StoreError, Unreachable
from brokerha.model.requests import REFUSED, REJECTED_STATUS, UNKNOWN, Reply
from brokerha.pipeline.loading_columns import parsed
from brokerha.pipeline.publishing import Result, SinkOptions, prefix_of, txid_of
from brokerha.pipeline.publishing_rows import check_columns, chunks
from brokerha.pipeline.publishing_task import FIRST_PAUSE_S, LONGEST_PAUSE_S, Task, publish
from tests.unit.client.fake_wire import FakeWire
from tests.unit.pipeline.loading_cluster import LoadCluster

BUSY = Reply(0, "", REFUSED, 0, "NotReady", "the journal is full")
SILENT = Reply(0, "", UNKNOWN, 0, "OutcomeUnknown", "no answer")
TABLE = {"url": "x", "table": "t"}
GRAPH = {"url": "x", "repository": "main"}


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    """Batches of three rows each."""
    table = pa.table(columns)
    return list(table.to_batches(max_chunksize=3))


def keys(count: int, **more: list[Any]) -> list[pa.RecordBatch]:
    return rows(key=[f"k{n}" for n in range(1, count + 1)], value=["v"] * count, **more)


class Desk:
    """Publishes to a cluster of this process, with a clock that only its pauses move."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.cluster = LoadCluster()
        self.pauses: list[float] = []

    def publish(
        self, batches: list[pa.RecordBatch], connect: Callable[[str], Client] | None = None, begin_lsn: int = 0, **options: str
    ) -> Result:
        made = SinkOptions.from_options({**self.options, **options})
        task = Task("w", "7", begin_lsn)
        return publish(
            batches, made, task, connect or self.cluster.connect, self.pauses.append, lambda: sum(self.pauses)
        )  # fmt: skip

    def operations(self) -> list[tuple[Any, ...]]:
        return self.cluster.operations()


# ---- options and columns


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "t"}, "which cluster"),
        ({**TABLE, "queue": "q"}, "table and queue are two places"),
        ({**TABLE, "tabel": "t"}, "no option 'tabel'"),
        ({**TABLE, "kind": "publish"}, "'publish' is none of append, delete, put, upsert"),
        ({**TABLE, "graph": "urn:g"}, "write repository"),
        ({**TABLE, "id": "a b"}, "visible ASCII"),
        ({**TABLE, "maxRejects": "3"}, "would lose rows"),
        ({**TABLE, "maxRejects": "-1"}, "maxRejects is a whole number of at least 0, not '-1'"),
        ({**TABLE, "window": "many"}, "window is a whole number of at least 1"),
        ({**TABLE, "timeout": "0"}, "timeout is a number"),
        ({**TABLE, "ack": "soon"}, "soon"),
        ({**TABLE, "rejects": "gopher://host/bad"}, "gopher:// is no place for data"),
        ({**TABLE, "dryRun": "yes"}, "dryRun is true or false"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options, words):
    with pytest.raises((ConfigurationError, InvalidRequest), match=words):
        SinkOptions.from_options(options)


def test_options_are_taken_in_any_case_and_those_of_spark_are_left_to_it():
    made = SinkOptions.from_options({"URL": "x", "Table": "t", "MAXREJECTS": "2", "rejects": "r", "checkpointLocation": "c"})
    assert (made.store, made.name, made.max_rejects) == ("table", "t", 2)


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        (TABLE, {"key": "string", "valeu": "string"}, "no column 'valeu'"),
        (TABLE, {"key": "integer", "value": "string"}, "column key is integer, and has to be string or binary"),
        (TABLE, {"value": "string"}, "a table takes the columns key and value"),
        (TABLE, {"key": "string"}, "to delete, key and the option kind"),
        (GRAPH, {"subject": "string"}, "takes the column statement"),
        (GRAPH, {"statement": "binary"}, "column statement is binary, and has to be string"),
        ({**GRAPH, "graph": "urn:g"}, {"statement": "string", "graph": "string"}, "leave one out"),
        ({"url": "x"}, {"key": "string", "value": "string"}, "where to"),
        ({"url": "x", "queue": "q"}, {"content_type": "string"}, "a queue takes"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_before_any_row(options, columns, words):
    with pytest.raises(ConfigurationError, match=words):
        check_columns(columns, SinkOptions.from_options(options))


# ---- what rows become


@pytest.mark.parametrize(
    ("options", "columns", "wanted"),
    [
        (TABLE, {"key": ["a"], "value": [b"\xff"]}, [("put", "t", b"a", b"\xff")]),
        ({**TABLE, "kind": "delete"}, {"key": ["a"]}, [("delete", "t", b"a")]),
        ({**TABLE, "kind": "append"}, {"key": ["a"], "value": ["1"]}, [("expect-key", "t", b"a", ""), ("put", "t", b"a", b"1")]),
        (TABLE, {"key": ["a", "b"], "value": ["1", None], "kind": [None, "delete"]}, [("put", "t", b"a", b"1"), ("delete", "t", b"b")]),
        ({"url": "x", "queue": "q"}, {"value": ["hi"]}, [("publish", "q", "text/plain;charset=utf-8", b"hi")]),
        ({"url": "x", "queue": "q"}, {"value": [b"{}"], "content_type": ["application/json"]}, [("publish", "q", "application/json", b"{}")]),
        ({"url": "x", "queue": "q", "kind": "delete"}, {"key": ["w.1.1"]}, [("accept", "q", "w.1.1")]),
        (GRAPH, {"subject": ["<urn:a>"], "predicate": ["<urn:b>"], "object": ['"c"']}, [("add", "main", '<urn:a> <urn:b> "c" .\n')]),
        ({**GRAPH, "graph": "urn:g"}, {"statement": ["<urn:a> <urn:b> _:x ."]}, [("add", "main", "<urn:a> <urn:b> _:x <urn:g> .\n")]),
        (
            GRAPH, {"statement": ["# no", "", "<urn:a> <urn:b> <urn:c> .\n\n<urn:a> <urn:b> <urn:d> ."]},
            [("add", "main", "<urn:a> <urn:b> <urn:c> .\n<urn:a> <urn:b> <urn:d> .\n")],
        ),
        (
            {"url": "x"},
            {
                "store": ["graph", "graph", "table", "graph"], "name": ["r", "r", "t", "r"], "kind": ["add", "remove", "put", "remove"],
                "subject": ["<urn:a>", "<urn:b>", None, "<urn:c>"], "predicate": ["<urn:p>"] * 4, "object": ["<urn:o>"] * 4,
                "graph": [None, "<urn:g>", None, None], "key": [None, None, b"k", None], "value": [None, None, b"v", None],
            },
            [
                ("add", "r", "<urn:a> <urn:p> <urn:o> .\n"), ("remove", "r", "<urn:b> <urn:p> <urn:o> <urn:g> .\n"), ("put", "t", b"k", b"v"),
                ("remove", "r", "<urn:c> <urn:p> <urn:o> .\n"),
            ],
        ),
    ],
)  # fmt: skip
def test_rows_become_operations_in_their_order(options, columns, wanted):
    desk = Desk(**options)
    result = desk.publish(rows(**columns))
    assert (desk.operations(), result.rejects, result.transactions) == (wanted, 0, 1)


@pytest.mark.parametrize(
    ("options", "columns", "reason"),
    [
        (TABLE, {"key": [None], "value": ["v"]}, "key is null"),
        (TABLE, {"key": ["k"], "value": pa.array([None], pa.string())}, "value is null"),
        (TABLE, {"key": ["k" * 2000], "value": ["v"]}, "a key has 1 to"),
        (TABLE, {"key": ["k"], "value": ["v"], "kind": ["publish"]}, "kind 'publish' is none of"),
        (TABLE, {"key": ["k"], "value": ["v"], "reject": ["seen before"]}, "seen before"),
        ({"url": "x"}, {"store": ["tabel"], "name": ["t"], "key": ["k"]}, "a store is graph, table or queue"),
        (GRAPH, {"statement": ["no statement"]}, "must be an IRI or a blank node"),
        (GRAPH, {"statement": ["<urn:a> <urn:b> <urn:c> . <urn:a> <urn:b> <urn:d> ."]}, "Only a single triple or quad"),
        (GRAPH, {"subject": ["<urn:a>"], "predicate": pa.array([None], pa.string()), "object": ["<urn:b>"]}, "predicate is null"),
        ({**GRAPH, "graph": "urn:g"}, {"statement": ["<urn:a> <urn:b> <urn:c> <urn:d> ."]}, "must be followed by a dot"),
        (GRAPH, {"statement": ['<urn:a> <urn:b> "\\uD800" .']}, "columns"),
    ],
)  # fmt: skip
def test_a_row_that_the_cluster_would_refuse_is_a_reject_and_no_other_suffers(options, columns, reason, tmp_path):
    desk = Desk(**options, rejects=str(tmp_path), maxRejects="1")
    result = desk.publish(rows(**columns))
    assert (result.rejects, result.items, result.is_stopped) == (1, 0, False)
    assert reason in result.first_rejects[0].reason
    [line] = (tmp_path / "w.7.1.jsonl").read_text().splitlines()
    assert json.loads(line) == result.first_rejects[0]._asdict()


def test_a_key_that_is_appended_twice_is_refused_the_second_time_in_one_transaction_too():
    batches = rows(key=["a", "b", "a", "a"], value=["1", "2", "3", "4"], kind=["append", "append", "append", "upsert"])
    [chunk] = chunks(batches, SinkOptions.from_options(TABLE), "w", "7")
    assert [one[2:] for one in chunk.operations if one[0] == "put"] == [(b"a", b"1"), (b"b", b"2"), (b"a", b"4")]
    assert [(one.row, one.reason) for one in chunk.rejects] == [(3, "an earlier row of the same transaction writes this key")]


def test_text_that_is_not_utf8_is_shown_and_not_sent():
    column = pa.Array.from_buffers(pa.string(), 2, pa.array([b"<urn:a> <urn:b> <urn:c> .", b"\xffbad"], pa.binary()).buffers())
    desk = Desk(**GRAPH)
    result = desk.publish([pa.RecordBatch.from_arrays([column], names=["statement"])], dryRun="true")
    assert (result.rejects, result.items) == (1, 1)
    assert result.first_rejects[0][3:] == ("statement is not UTF-8", "\\xffbad")


def test_one_bad_statement_of_a_row_refuses_the_row_and_names_it():
    result = Desk(**GRAPH).publish(rows(statement=["<urn:a> <urn:b> <urn:c> .\n<no iri> <urn:b> <urn:c> ."]), dryRun="true")
    assert result.items == 0
    assert result.first_rejects[0].reason.startswith("'<no iri> <urn:b> <urn:c> .': ")


def test_blank_nodes_of_a_source_are_the_same_in_all_transactions_and_kept_without_one():
    desk = Desk(**GRAPH, rowsPerTransaction="1")
    desk.publish(rows(statement=["_:a <urn:p> _:b .", "_:b <urn:p> _:a .", "_:a <urn:p> _:a ."], source=["f", "f", None]))
    f = prefix_of("w", "f")
    assert desk.cluster.lines() == [f"_:{f}a <urn:p> _:{f}b .", f"_:{f}b <urn:p> _:{f}a .", "_:a <urn:p> _:a ."]


# ---- transactions and their ids


def test_ids_name_the_part_and_the_first_row_whatever_the_batches_are():
    desk = Desk(**TABLE, rowsPerTransaction="4")
    desk.publish(keys(10))
    assert list(desk.cluster.bodies) == ["w.7.1", "w.7.5", "w.7.9"]
    other = Desk(**TABLE, rowsPerTransaction="4")
    other.publish([pa.Table.from_batches(keys(10)).combine_chunks().to_batches()[0]])
    assert other.cluster.bodies == desk.cluster.bodies


def test_rows_of_a_part_are_counted_in_it_wherever_it_lies():
    parts = ["a"] * 3 + ["b c"] * 2
    desk = Desk(**TABLE, rowsPerTransaction="2")
    desk.publish(keys(5, part=parts))
    alone = Desk(**TABLE, rowsPerTransaction="2")
    alone.publish(keys(5, part=parts)[1:])
    assert list(desk.cluster.bodies) == ["w.a.1", "w.a.3", txid_of("w", "b c", 1)]
    assert list(alone.cluster.bodies) == [txid_of("w", "b c", 1)]


def test_large_rows_end_a_transaction_early_and_no_row_is_cut():
    options = SinkOptions.from_options(TABLE)
    found = list(chunks(rows(key=["a", "b", "c"], value=["v" * 200_000] * 3), options, "w", "0"))
    assert [(chunk.first_row, chunk.rows) for chunk in found] == [(1, 1), (2, 1), (3, 1)]


def test_the_same_partition_again_is_answered_and_changes_nothing():
    desk = Desk(**TABLE, rowsPerTransaction="3")
    first = desk.publish(keys(8))
    again = desk.publish(keys(8), begin_lsn=first.lsn)
    assert (first.repeated, again.repeated, again.items, again.lsn) == (0, 3, 8, first.lsn)
    assert len(desk.cluster.bodies) == 3


def test_other_rows_under_a_used_id_are_an_error_that_says_what_to_do():
    desk = Desk(**TABLE)
    desk.publish(keys(3))
    result = desk.publish(rows(key=["k3", "k1", "k2"], value=["v"] * 3))
    assert result.error == "KeyReused"
    assert "sortWithinPartitions" in result.reason


def test_no_more_than_the_window_are_under_way():
    wire = FakeWire()
    desk = Desk(**TABLE, window="2", rowsPerTransaction="1")
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(desk.publish, keys(5), lambda _: Client(wire))
        for number in range(1, 6):
            wire.wait_for_open(min(2, 6 - number))
            wire.reply(lsn=number)
        assert publishing.result(5).lsn == 5
    assert wire.most_open == 2


@pytest.mark.parametrize("fault", [BUSY, SILENT, Unreachable("gone"), NotReady("later"), OutcomeUnknown("w.7.1")])
def test_what_was_refused_or_not_answered_is_sent_again_under_its_id(fault):
    desk = Desk(**TABLE, window="1", rowsPerTransaction="1")
    desk.cluster.faults = [fault, fault, None, fault]
    assert desk.publish(keys(2)).transactions == 2
    assert desk.cluster.sent == ["w.7.1", "w.7.1", "w.7.1", "w.7.2", "w.7.2"]
    assert desk.pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, FIRST_PAUSE_S]


def test_patience_ends_with_the_last_error_and_pauses_grow_to_a_limit():
    desk = Desk(**TABLE, patience="60", rowsPerTransaction="2", window="1")
    desk.cluster.faults = [None, *[BUSY] * 1000]
    result = desk.publish(keys(4))
    assert (result.error, result.items, result.is_stopped) == ("NotReady", 2, True)
    assert max(desk.pauses) == LONGEST_PAUSE_S
    assert 50 < sum(desk.pauses) <= 60
    with pytest.raises(
        NotReady, match=r"the journal is full \(2 keys in 1 transactions are written under id 'w'; the same rows .* twice\)"
    ):
        result.check(SinkOptions.from_options(TABLE), "w")


# ---- rejects


def test_more_rejects_than_allowed_stop_the_partition_and_the_write_names_the_first():
    desk = Desk(**GRAPH, rowsPerTransaction="2")
    good = "<urn:a> <urn:b> <urn:c> ."
    result = desk.publish(rows(statement=[good, good, "bad", good, good, good]))
    assert (result.is_stopped, result.rejects, result.rows, result.items) == (True, 1, 4, 2)
    with pytest.raises(InvalidRequest, match=r"1 rows are refused and 0 allowed .*: 'bad'"):
        result.check(SinkOptions.from_options(GRAPH), "w")


def test_a_reject_that_stands_for_the_rest_of_a_file_is_counted_apart(tmp_path):
    (tmp_path / "a.ttl").write_text("<urn:a> <urn:b> <urn:c> . oops")
    desk = Desk(**GRAPH, rejects=str(tmp_path / "bad"), maxRejects="5")
    result = desk.publish([*parsed(str(tmp_path / "a.ttl"), "ttl", "a.ttl"), *rows(statement=["bad"], part=["1"])])
    assert (result.items, result.rejects, result.unread, result.is_stopped) == (1, 2, 1, False)
    result.add(result)
    assert result.unread == 2


def test_a_rejected_transaction_makes_all_its_rows_rejects_and_those_behind_it_go_on(tmp_path):
    desk = Desk(**TABLE, rowsPerTransaction="2", rejects=f"file://{tmp_path}/bad%20rows", maxRejects="2")
    desk.cluster.faults = [None, Reply(0, "w.7.3", REJECTED_STATUS, 9, "Rejected", "check c fails")]
    result = desk.publish(keys(6))
    assert (result.items, result.rejects, result.transactions, result.is_stopped) == (4, 2, 2, False)
    found = [json.loads(line) for line in (tmp_path / "bad rows" / "w.7.3.jsonl").read_text().splitlines()]
    assert [(one["row"], json.loads(one["text"])["key"]) for one in found] == [(3, "k3"), (4, "k4")]
    assert "check c fails" in found[0]["reason"]


def test_a_folder_for_rejects_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Desk(**GRAPH, rejects=str(tmp_path / "file"), maxRejects="1").publish(rows(statement=["bad"]))


def test_a_dry_run_judges_every_row_and_connects_to_nobody(tmp_path: Path):
    desk = Desk(repository="main", dryRun="true")
    result = desk.publish(rows(statement=["bad", "<urn:a> <urn:b> <urn:c> .", "worse"]))
    assert (result.rejects, result.items, result.is_stopped, desk.cluster.connections) == (2, 1, False, 0)
    result.check(SinkOptions.from_options(desk.options), "w")
