"""`brokerha update | query | get | put | delete | load`: what reaches the client, and what is written about its answer."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgpack
import pytest

import brokerha
from brokerha.cli.common import inputs
from brokerha.cli.data.load import SPELLING
from brokerha.cli.data.read_write import RESULTS_JSON, term
from brokerha.cli.main import main
from brokerha.client.exporting import Export
from brokerha.client.loading import Loaded
from brokerha.model.errors import OutcomeUnknown, Rejected
from tests.unit.cli.fake_cluster import FakeClient

URL = ("--url", "http://127.0.0.1:7201")


class Written(NamedTuple):
    txid: str = "t1"
    lsn: int = 7
    level: str = "applied"


class Result(NamedTuple):
    body: bytes
    content_type: str = RESULTS_JSON
    lsn: int = 7


@pytest.fixture
def standard_input(monkeypatch):
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


# ---- writes


@pytest.mark.parametrize("given", [("--file", "insert.ru"), ("-",)])
def test_a_long_insert_data_is_one_large_transaction(run, cluster, tmp_path, monkeypatch, given):
    monkeypatch.setattr(inputs, "BODY_LIMIT_BYTES", 100)
    monkeypatch.chdir(tmp_path)
    text = "INSERT DATA {" + " <urn:a> <urn:b> 1 ." * 50 + "}"
    (tmp_path / "insert.ru").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    large = SimpleNamespace(written=Written())
    read: list[Any] = []

    def load(repository: str, source: Any, syntax: str) -> None:
        read.extend((repository, b"".join(iter(lambda: source.read(70), b"")).decode(), syntax))

    client = cluster(large_transaction=lambda: nullcontext(large), load=load)
    ran = run("update", *given, *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n"), ran.err
    assert read == ["main", text, "ru"]
    [named] = [call[-1] for call in client.calls if call[0] == "load"]
    assert named["inside"] is large
    ran = run("update", "--file", "insert.ru", "--apart", "refuse", *URL)
    assert ran.code == 64
    assert "--apart refuse is for updates up to" in ran.err


def test_an_update_is_sent_with_its_options_and_its_place_is_shown(run, cluster):
    client = cluster(update=Written())
    ran = run("update", "INSERT DATA {}", "--repository", "graph", "--ack", "applied=2", "--key", "k1", *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    assert ("update", "graph", "INSERT DATA {}", {"key": "k1", "ack": "applied=2", "apart": "wait"}) in client.calls


def test_a_write_says_what_it_wants_at_a_master_that_cannot_agree(run, cluster):
    client = cluster(put=Written(), delete=Written())
    run("put", "t", "k", "v", "--apart", "refuse", *URL)
    run("delete", "t", "k", *URL)
    assert [call[-1]["apart"] for call in client.calls if call[0] in {"put", "delete"}] == ["refuse", "wait"]
    ran = run("put", "t", "k", "v", "--apart", "later", *URL)
    assert ran.code == 64
    assert "write wait or refuse" in ran.err


def test_an_update_comes_from_a_file_or_from_standard_input(run, cluster, tmp_path, standard_input):
    (tmp_path / "u.rq").write_text("CLEAR ALL")
    standard_input(b"DROP ALL")
    client = cluster(update=Written())
    run("update", "--file", "u.rq", *URL)
    run("update", "-", *URL)
    assert [call[2] for call in client.calls if call[0] == "update"] == ["CLEAR ALL", "DROP ALL"]


def test_a_write_that_has_no_lsn_yet_says_so(run, cluster):
    cluster(update=Written(lsn=0, level="accepted"))
    assert run("update", "CLEAR ALL", "--ack", "accepted", *URL).out == "accepted: no LSN yet, transaction t1\n"
    assert json.loads(run("update", "CLEAR ALL", "-o", "json", *URL).out) == {"txid": "t1", "lsn": None, "level": "accepted"}


def test_a_value_is_sent_byte_for_byte(run, cluster, standard_input):
    standard_input(b"\x00\xff\n")
    client = cluster(put=Written())
    run("put", "prices", "schl\u00fcssel", "-", *URL)
    run("put", "prices", "sku-1", "9.90", *URL)
    sent = [call[1:4] for call in client.calls if call[0] == "put"]
    assert sent == [("prices", "schl\u00fcssel".encode(), b"\x00\xff\n"), ("prices", b"sku-1", b"9.90")]


def test_a_value_that_is_too_large_is_refused_with_advice_for_values(run, cluster, standard_input):
    standard_input(b"x" * 9_000_000)
    cluster(put=Written())
    ran = run("put", "prices", "sku-1", "-", *URL)
    assert ran.code == 2
    assert "divide the value over several keys" in ran.err
    assert "quads" not in ran.err


def test_a_key_is_deleted(run, cluster):
    client = cluster(delete=Written())
    ran = run("delete", "prices", "sku-1", "-o", "yaml", *URL)
    assert ran.out == "txid: t1\nlsn: 7\nlevel: applied\n"
    assert any(call[:3] == ("delete", "prices", b"sku-1") for call in client.calls)


@pytest.mark.parametrize("ack", ["done", "applied=", "applied=0", "accepted=2", "APPLIED"])
def test_an_unknown_level_is_a_usage_error_before_anything_is_sent(run, cluster, ack):
    client = cluster(update=Written())
    ran = run("update", "CLEAR ALL", "--ack", ack, *URL)
    assert ran.code == 64
    assert "write accepted, synchronised, applied, or applied=N" in ran.err
    assert client.calls == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Rejected("the repository x does not exist", "t1", 7), "the repository x does not exist; nothing was changed"),
        (OutcomeUnknown("t1"), "ask later with: brokerha wait t1; the same write with --key t1 takes effect once"),
    ],
)
def test_a_write_that_failed_is_exit_code_2_and_one_line(run, cluster, error, text):
    cluster(update=error)
    ran = run("update", "CLEAR ALL", *URL)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.rstrip().endswith(text)
    assert ran.err.count("\n") == 1


# ---- reads


def test_a_value_is_written_as_it_is(cluster, capsysbinary):
    client = cluster(get=b"\x00\xff")
    assert main(["get", "prices", "sku-1", "--min-lsn", "5", *URL]) == 0
    assert capsysbinary.readouterr().out == b"\x00\xff"
    assert ("get", "prices", b"sku-1", {"snapshot": None, "min_lsn": 5}) in client.calls


def test_a_read_may_ask_for_the_latest(run, cluster):
    client = cluster(get=b"1")
    assert main(["get", "prices", "sku-1", "--min-lsn", "latest", *URL]) == 0
    assert ("get", "prices", b"sku-1", {"snapshot": None, "min_lsn": "latest"}) in client.calls
    for wrong in ("newest", "-1"):
        ran = run("get", "prices", "sku-1", "--min-lsn", wrong, *URL)
        assert ran.code == 64
        assert "whole number of 0 or more, or latest" in " ".join(ran.err.split())


def test_a_key_that_is_not_there_is_exit_code_2(run, cluster):
    cluster(get=None)
    ran = run("get", "prices", "sku-1", *URL)
    assert (ran.code, ran.out, ran.err) == (2, "", "brokerha: table prices has no key sku-1\n")


ROWS_OF_TABLE = [(b"sku-1", b"9.90"), (b"sku-2", b"\xff")]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--prefix", "sku"), {"prefix": b"sku", "start": b"", "end": None}),
        (("--prefix", ""), {"prefix": b"", "start": b"", "end": None}),
        (("--range", "a..b"), {"prefix": b"", "start": b"a", "end": b"b"}),
        (("--range", "a.."), {"prefix": b"", "start": b"a", "end": None}),
        (("--range", "..b"), {"prefix": b"", "start": b"", "end": b"b"}),
    ],
)
def test_keys_of_a_prefix_or_a_range_come_with_their_values(run, cluster, words, asked):
    client = cluster(export=Export(7, iter(ROWS_OF_TABLE)))
    ran = run("get", "prices", *words, "--min-lsn", "5", "-o", "json", *URL)
    assert (ran.code, ran.err) == (0, "brokerha: 2 keys at LSN 7\n")
    assert json.loads(ran.out) == {"lsn": 7, "rows": [{"key": "sku-1", "value": "9.90"}, {"key": "sku-2", "value_base64": "/w=="}]}
    assert ("export", "prices", {**asked, "snapshot": None, "min_lsn": 5}) in client.calls


def test_keys_are_shown_as_a_table_too(run, cluster):
    cluster(export=Export(7, iter(ROWS_OF_TABLE)))
    ran = run("get", "prices", "--prefix", "", "-o", "tsv", *URL)
    assert ran.out.splitlines() == ["key\tvalue", "sku-1\t9.90", "sku-2\t\\\\xff"]


@pytest.mark.parametrize(
    "words", [(), ("k", "--prefix", "k"), ("--prefix", "k", "--range", "a..b"), ("--range", "a-b"), ("k", "-o", "json")]
)
def test_which_keys_are_meant_is_said_once(run, cluster, words):
    cluster()
    ran = run("get", "prices", *words, *URL)
    assert ran.code == 64
    assert "writ" in ran.err


def test_tables_are_listed(run, cluster):
    cluster(tables=[["prices", "stock"]])
    assert json.loads(run("table", "list", "-o", "json", *URL).out) == {"tables": ["prices", "stock"]}


def test_an_export_is_a_line_for_each_key(cluster, capsysbinary):
    cluster(export=Export(9, iter(ROWS_OF_TABLE)))
    assert main(["table", "export", "prices", *URL]) == 0
    written = capsysbinary.readouterr()
    assert [json.loads(line) for line in written.out.splitlines()] == [
        {"key": "sku-1", "value": "9.90"}, {"key": "sku-2", "value_base64": "/w=="},
    ]  # fmt: skip
    assert written.err == b"brokerha: 2 keys of table prices at LSN 9\n"


def test_an_export_may_be_msgpack_one_row_after_the_other(cluster, capsysbinary):
    cluster(export=Export(9, iter(ROWS_OF_TABLE)))
    assert main(["table", "export", "prices", "--as", "msgpack", *URL]) == 0
    rows = msgpack.Unpacker(io.BytesIO(capsysbinary.readouterr().out), use_list=False)
    assert list(rows) == ROWS_OF_TABLE


ROWS = {
    "head": {"vars": ["s", "name", "size"]},
    "results": {
        "bindings": [
            {"s": {"type": "uri", "value": "urn:a"}, "name": {"type": "literal", "value": "Haus", "xml:lang": "de"}},
            {"s": {"type": "bnode", "value": "b0"}, "size": {"type": "literal", "value": "3", "datatype": "x"}},
        ]
    },
}


def test_rows_are_a_table(run, cluster):
    client = cluster(query=Result(json.dumps(ROWS).encode()))
    ran = run("query", "SELECT * {}", *URL)
    assert [line.split() for line in ran.out.splitlines()] == [["s", "name", "size"], ["<urn:a>", "Haus@de"], ["_:b0", "3"]]
    assert ran.err == "brokerha: 2 rows at LSN 7\n"
    sent = next(call for call in client.calls if call[0] == "query")
    assert sent == ("query", "main", "SELECT * {}", {"accept": f"{RESULTS_JSON}, application/n-triples;q=0.9", "min_lsn": 0})


def test_a_question_is_answered_with_yes_or_no(run, cluster):
    cluster(query=Result(b'{"head":{},"boolean":true}'))
    assert run("query", "ASK {}", *URL).out == "yes\n"


def test_json_is_what_the_cluster_said(run, cluster):
    cluster(query=Result(json.dumps(ROWS).encode()))
    assert json.loads(run("query", "SELECT * {}", "-o", "json", *URL).out) == ROWS


@pytest.mark.parametrize(
    ("arguments", "accept"),
    [(("-o", "tsv"), "text/tab-separated-values, application/n-triples;q=0.9"), (("--accept", "text/csv"), "text/csv")],
)
def test_other_formats_are_asked_for_and_passed_on(run, cluster, arguments, accept):
    client = cluster(query=Result(b"?s\n<urn:a>\n", accept.split(",", maxsplit=1)[0]))
    assert run("query", "SELECT * {}", *arguments, *URL).out == "?s\n<urn:a>\n"
    assert next(call for call in client.calls if call[0] == "query")[3]["accept"] == accept


def test_a_graph_is_written_as_it_comes(run, cluster):
    cluster(query=Result(b"<a:a> <a:a> <a:a> .\n", "application/n-triples"))
    assert run("query", "CONSTRUCT {}", *URL).out == "<a:a> <a:a> <a:a> .\n"


def test_terms_are_written_as_people_read_them():
    inner = {"type": "uri", "value": "urn:a"}
    assert (
        term({"type": "triple", "value": {"subject": inner, "predicate": inner, "object": inner}})
        == "<< <urn:a> <urn:a> <urn:a> >>"
    )
    assert term(None) == ""


# ---- load


class Loading:
    """Stands for `Client.load`: takes two transactions for each file, fails at the one that it is told."""

    def __init__(self, fail_at: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._fail_at = fail_at
        self._lsn = 0

    def __call__(self, repository: str, source: Any, syntax: str, *, on_progress: Any, **options: Any) -> Loaded:
        lines = list(source)
        self.calls.append((repository, b"".join(lines), syntax, options))
        for number in (1, 2):
            self._lsn += 1
            if self._lsn == self._fail_at:
                raise Rejected("the line is no statement", "t", self._lsn)
            on_progress(Loaded(number * 10, number, self._lsn))
        return Loaded(20, 2, self._lsn)


@pytest.fixture
def loading(monkeypatch):
    def install(fail_at: int = 0) -> Loading:
        loaded = Loading(fail_at)

        class Client(FakeClient):
            load = staticmethod(loaded)

        monkeypatch.setattr(brokerha, "connect", lambda _address, timeout: Client(), raising=False)
        return loaded

    return install


def test_a_file_is_handed_to_the_client_with_its_syntax_and_options(run, loading, tmp_path):
    (tmp_path / "data.nt.gz").write_bytes(gzip.compress(b"<urn:a> <urn:b> <urn:c> .\n"))
    loaded = loading()
    ran = run("load", "data.nt.gz", "--repository", "graph", "--graph", "urn:g", "--key", "K", "--ack", "accepted", *URL)
    assert (ran.code, ran.out, ran.err) == (0, "20 statements in 2 transactions, up to LSN 2\n", f"brokerha: {SPELLING}\n")
    options = {"graph": "urn:g", "ack": "accepted", "key": "K", "inside": None}
    assert loaded.calls == [("graph", b"<urn:a> <urn:b> <urn:c> .\n", ".nt", options)]


def test_several_files_and_standard_input_are_one_load_with_keys_of_their_own(run, loading, tmp_path, standard_input):
    (tmp_path / "data.ttl").write_text("<urn:a> <urn:b> 1 .")
    standard_input(b"<urn:a> <urn:b> <urn:c> <urn:g> .")
    loaded = loading()
    ran = run("load", "data.ttl", "-", "--key", "K", "-o", "json", *URL)
    assert json.loads(ran.out) == {"transactions": 4, "statements": 40, "lsn": 4}
    assert [(call[2], call[3]["key"]) for call in loaded.calls] == [(".ttl", "K.file1"), ("nq", "K.file2")]


def test_the_syntax_can_be_said(run, loading, tmp_path):
    (tmp_path / "data.txt").write_text("")
    loaded = loading()
    run("load", "data.txt", "--format", "nt", *URL)
    assert [call[2] for call in loaded.calls] == ["nt"]


def test_a_load_that_fails_says_how_much_was_done(run, loading, tmp_path):
    for name in ("one.nt", "two.nt"):
        (tmp_path / name).write_text("")
    loading(fail_at=4)
    ran = run("load", "one.nt", "two.nt", *URL)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "brokerha: 30 statements in 3 transactions were done before this error:",
        "brokerha: the line is no statement; nothing was changed",
    ]


def test_no_file_is_sent_when_one_of_them_cannot_be_read(run, loading, tmp_path):
    (tmp_path / "data.nt").write_text("")
    loaded = loading()
    ran = run("load", "data.nt", "none.nt", *URL)
    assert (ran.code, loaded.calls) == (64, [])
    assert "none.nt cannot be read: No such file or directory" in ran.err


def test_a_pipe_is_sent_as_a_whole(run, loading, tmp_path):
    os.mkfifo(tmp_path / "data.nt")
    writer = threading.Thread(target=(tmp_path / "data.nt").write_bytes, args=(b"<urn:a> <urn:b> <urn:c> .\n",))
    writer.start()
    loaded = loading()
    assert run("load", "data.nt", *URL).code == 0
    writer.join(10)
    assert [call[1] for call in loaded.calls] == [b"<urn:a> <urn:b> <urn:c> .\n"]


def test_progress_follows_how_far_the_file_was_read(run, loading, tmp_path, monkeypatch):
    (tmp_path / "data.nt").write_text("x" * 100)
    advanced: list[float] = []

    @contextmanager
    def progress(_what: str, total: float | None, _unit: str) -> Iterator[Any]:
        assert total == 100
        yield SimpleNamespace(advance=advanced.append)

    monkeypatch.setattr(inputs, "progress", progress)
    loading()
    run("load", "data.nt", *URL)
    assert sum(advanced) == 100
