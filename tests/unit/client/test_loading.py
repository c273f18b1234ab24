"""Loading: long input becomes transactions of bounded size; blank nodes keep together within a load and apart between two."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma

import pytest

from brokerha.client import Client, Session, loading
from brokerha.client.loading import Loaded, in_graph, is_statement, relabelled, statements
from brokerha.model import errors
from brokerha.model.operations import Add, unpack_operations
from brokerha.model.requests import REJECTED_STATUS, Reply
from tests.unit.client.fake_wire import FakeWire
from tests.unit.client.serving import Served


def applied(txid: str, _: bytes) -> Reply:
    return Reply(0, txid, "applied", 1)


def triples(count: int) -> list[str]:
    return [f"<urn:s:{number}> <urn:p> _:b{number % 7} .\n" for number in range(count)]


def loaded_lines(wire: FakeWire) -> list[str]:
    operations = [unpack_operations(body) for batch in wire.batches for _, body in batch]
    assert all(len(one) == 1 and isinstance(one[0], Add) for one in operations)
    return [line for [each] in operations if isinstance(each, Add) for line in each.text.splitlines()]


def test_input_is_cut_into_transactions_and_nothing_is_lost(db: Session, served: Served) -> None:
    seen: list[Loaded] = []

    done = db.load("main", triples(5000), "nt", on_progress=seen.append)

    assert done == (5000, 3, 3)
    assert len(served.front.repositories["main"]) == 5000
    assert seen[-1] == done
    assert [one.statements for one in seen] == [2000, 4000, 5000]


def test_a_blank_node_is_one_in_all_transactions_of_a_load_and_another_in_the_next(db: Session, served: Served) -> None:
    for _ in range(2):
        db.load("main", triples(5000), "nt")

    nodes = {line.split()[2] for line in served.front.repositories["main"]}
    assert len(nodes) == 14


def test_a_transaction_ends_at_its_size_too(monkeypatch) -> None:
    monkeypatch.setattr(loading, "SIZE_LIMIT_BYTES", 100)
    wire = FakeWire(applied)

    Client(wire).load("main", ["<urn:s> <urn:p> <urn:o> .\n"] * 10, "nt")

    sizes = [len(body) for batch in wire.batches for _, body in batch]
    assert len(sizes) == 3
    assert len(loaded_lines(wire)) == 10


def test_a_load_with_a_key_may_be_started_again_and_writes_the_same_transactions(tmp_path) -> None:
    file = tmp_path / "people.ttl"
    file.write_text("@prefix : <urn:> . " + " ".join(f":p{number} :knows [ :name '{number}' ] ." for number in range(3000)))
    wires = [FakeWire(applied), FakeWire(applied)]

    for wire in wires:
        Client(wire).load("main", file, key="people")

    first, second = [[write for batch in wire.batches for write in batch] for wire in wires]
    assert first == second
    assert [txid for txid, _ in first] == ["people.1", "people.2", "people.3"]


def test_without_a_key_two_loads_are_two() -> None:
    wires = [FakeWire(applied), FakeWire(applied)]
    for wire in wires:
        Client(wire).load("main", ["_:a <urn:p> _:a .\n"], "nt")

    assert loaded_lines(wires[0]) != loaded_lines(wires[1])


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.nt", bytes),
        ("a.NT", bytes),
        ("a.nq", bytes),
        ("a.nt.gz", gzip.compress),
        ("a.nt.bz2", bz2.compress),
        ("a.nt.xz", lzma.compress),
    ],
)
def test_the_name_of_a_file_says_what_it_is(tmp_path, name, pack) -> None:
    (tmp_path / name).write_bytes(pack(b"<urn:s> <urn:p> <urn:o> .\n# comment\n\n  <urn:s> <urn:p> <urn:o2> . \r\n"))
    wire = FakeWire(applied)

    assert Client(wire).load("main", str(tmp_path / name)).statements == 2
    assert loaded_lines(wire) == ["<urn:s> <urn:p> <urn:o> .", "<urn:s> <urn:p> <urn:o2> ."]


@pytest.mark.parametrize(
    ("format_name", "text"),
    [
        ("turtle", "@prefix : <urn:> . :s :p :o ."),
        (".ttl", "@prefix : <urn:> . :s :p :o ."),
        ("trig", "@prefix : <urn:> . { :s :p :o }"),
        ("json-ld", '{"@id": "urn:s", "urn:p": {"@id": "urn:o"}}'),
        ("N-Triples", "<urn:s> <urn:p> <urn:o> ."),
    ],
)
def test_any_rdf_syntax_can_be_loaded_from_an_open_file(format_name, text) -> None:
    wire = FakeWire(applied)

    Client(wire).load("main", io.BytesIO(text.encode()), format_name)

    assert loaded_lines(wire) == ["<urn:s> <urn:p> <urn:o> ."]


def test_relative_iris_are_resolved_against_the_base() -> None:
    wire = FakeWire(applied)

    Client(wire).load("main", io.BytesIO(b"<s> <p> 1 ."), "ttl", base_iri="http://x/")

    assert loaded_lines(wire)[0].startswith("<http://x/s> <http://x/p>")


def test_triples_may_be_put_into_a_graph() -> None:
    wire = FakeWire(applied)

    Client(wire).load("main", ['<urn:s> <urn:p> "a . b" .'], "nt", graph="urn:g")

    assert loaded_lines(wire) == ['<urn:s> <urn:p> "a . b" <urn:g> .']


def test_a_carriage_return_alone_ends_a_statement_and_a_comment() -> None:
    wire = FakeWire(applied)
    source = io.BytesIO(b"# old Mac\r<urn:s> <urn:p> 'a' .\r<urn:s> <urn:p> <urn:o> . # so\r<urn:t> <urn:p> <urn:o> .\r\n")

    Client(wire).load("main", source, "nt", graph="urn:g")

    assert loaded_lines(wire) == [
        "<urn:s> <urn:p> 'a' <urn:g> .",
        "<urn:s> <urn:p> <urn:o> <urn:g> . # so",
        "<urn:t> <urn:p> <urn:o> <urn:g> .",
    ]


@pytest.mark.parametrize(
    ("source", "format_name", "more", "words"),
    [
        (["x"], None, {}, "say the format"),
        ("input.doc", None, {}, "'.doc' is not one of"),
        ("absent.nt", None, {}, "cannot be read: No such file"),
        (["x"], "ttl", {}, "read from a file"),
        (["x"], "nq", {"graph": "urn:g"}, "nq names its graphs itself"),
        (["<urn:s> <urn:p> <urn:o>"], "nt", {"graph": "urn:g"}, "line 1: no statement with a final dot"),
        (["<urn:s> <urn:p> <urn:o> ."], "nt", {"graph": "urn:g> . <urn:x>"}, "is no IRI"),
        ([b"<urn:s> <urn:p> '\xff' ."], "nt", {}, "line 1 is not UTF-8 (at byte 17)"),
        (io.BytesIO(b"garbage"), "ttl", {}, "the input is not TURTLE"),
        (io.BytesIO(b"<a> <b> <c> ."), "ttl", {}, "the input is not TURTLE"),
    ],
)
def test_bad_input_is_told_in_words(source, format_name, more, words) -> None:
    wire = FakeWire(applied)

    with pytest.raises(errors.InvalidRequest) as raised:
        Client(wire).load("main", source, format_name, **more)

    assert words in str(raised.value)
    assert not wire.batches


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("nt", "<urn:s> <urn:p> <urn:o> .\n"),
        ("ttl", "@prefix : <urn:> . :s :p :o ."),
        ("trig", "@prefix : <urn:> . :s :p :o ."),
        ("jsonld", '{"@id": "urn:s", "urn:p": {"@id": "urn:o"}}'),
        ("ru", "INSERT DATA { <urn:s> <urn:p> <urn:o> }"),
    ],
)
def test_a_byte_order_mark_before_the_text_is_no_part_of_it(db: Session, served: Served, tmp_path, ending: str, text: str) -> None:
    file = tmp_path / f"a.{ending}"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    for source in (str(file), io.BytesIO(file.read_bytes()), io.StringIO(f"\ufeff{text}")):
        db.load("main", source, ending)
    assert served.front.repositories["main"] == ["<urn:s> <urn:p> <urn:o> ."]


@pytest.mark.parametrize("ending", ["nt", "ttl"])
@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
@pytest.mark.parametrize("damage", ["cut off", "changed", "not packed"])
def test_a_packed_file_that_is_damaged_is_told_in_words(tmp_path, ending: str, suffix: str, pack, damage: str) -> None:
    content = "".join(f"<urn:s:{hash(number)}> <urn:p> {number**9} .\n" for number in range(500)).encode()
    packed = pack(content)
    middle = len(packed) // 2
    file = tmp_path / f"a.{ending}.{suffix}"
    changed = packed[:middle] + bytes(each ^ 0xFF for each in packed[middle : middle + 20]) + packed[middle + 20 :]
    file.write_bytes({"cut off": packed[:middle], "changed": changed, "not packed": content}[damage])
    with pytest.raises(errors.InvalidRequest, match=f"a.{ending}.{suffix} cannot be read: |line |TURTLE"):
        Client(FakeWire(applied)).load("main", file)


@pytest.mark.parametrize("format_name", ["nt", "ttl", "ru"])
def test_bytes_are_no_source_and_told_what_is(format_name: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"put bytes into io.BytesIO"):
        list(statements(b"<urn:a> <urn:b> <urn:c> .", format_name))


def test_a_line_without_end_is_not_read_into_memory_for_nothing(monkeypatch) -> None:
    monkeypatch.setattr(loading, "STATEMENT_LIMIT_BYTES", 50)

    with pytest.raises(errors.InvalidRequest, match="line 2 is longer"):
        Client(FakeWire(applied)).load("main", ["<urn:s> <urn:p> <urn:o> .", "x" * 51], "nt")


def test_what_a_node_refuses_is_told_with_its_place(db: Session) -> None:
    lines = [*triples(2000), "not rdf at all\n"]

    with pytest.raises(errors.InvalidRequest, match="statements 2001 to 2001: "):
        db.load("main", lines, "nt")


def test_a_failure_ends_the_load_soon() -> None:
    wire = FakeWire(lambda txid, _: Reply(0, txid, REJECTED_STATUS, 1, "Rejected", "repository 'main' does not exist"))
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield "<urn:s> <urn:p> <urn:o> .\n"

    with pytest.raises(errors.Rejected, match="does not exist"):
        Client(wire).load("main", endless(), "nt")
    assert len(taken) < 100 * loading.STATEMENTS_LIMIT


# ---- lines


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("_:a <urn:p> _:b .", "_:Xa <urn:p> _:Xb ."),
        ("_:a <urn:p> _:b.", "_:Xa <urn:p> _:Xb."),
        ("_:a.b <urn:p> _:1 _:g .", "_:Xa.b <urn:p> _:X1 _:Xg ."),
        (r'<urn:s> <urn:p> "_:a \" _:b" .', r'<urn:s> <urn:p> "_:a \" _:b" .'),
        (r'_:s <urn:p> "\\" .', r'_:Xs <urn:p> "\\" .'),
        ("<urn:_:a> <urn:p> _:b . # _:c", "<urn:_:a> <urn:p> _:Xb . # _:c"),
        ('<urn:s#x> <urn:p> "a"@en .', '<urn:s#x> <urn:p> "a"@en .'),
        ("<urn:s> <urn:p> <<( _:a <urn:p> _:b )>> .", "<urn:s> <urn:p> <<( _:Xa <urn:p> _:Xb )>> ."),
    ],
)
def test_labels_are_found_where_they_are_labels_only(line, result) -> None:
    assert relabelled(line, "X") == result


def test_numbered_labels_count_up_from_line_to_line() -> None:
    numbers: dict[str, int] = {}

    assert relabelled("_:x <urn:p> _:y .", "X", numbers) == "_:X1 <urn:p> _:X2 ."
    assert relabelled("_:y <urn:p> _:z .", "X", numbers) == "_:X2 <urn:p> _:X3 ."


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("<urn:s> <urn:p> <urn:o> .", "<urn:s> <urn:p> <urn:o> <urn:g> ."),
        ("<urn:s> <urn:p> _:o.", "<urn:s> <urn:p> _:o <urn:g> ."),
        ('<urn:s> <urn:p> "1. 2. 3." .', '<urn:s> <urn:p> "1. 2. 3." <urn:g> .'),
        ("<urn:s.t> <urn:p> _:a.b . # the end.", "<urn:s.t> <urn:p> _:a.b <urn:g> . # the end."),
        ("<urn:s> <urn:p> <<( <urn:a> <urn:b> 'c' )>> .", "<urn:s> <urn:p> <<( <urn:a> <urn:b> 'c' )>> <urn:g> ."),
    ],
)
def test_the_graph_stands_before_the_final_dot(line, result) -> None:
    assert in_graph(line, "urn:g") == result


def test_blank_lines_and_comments_are_no_statements() -> None:
    assert [is_statement(line) for line in ("", "  \n", "# x", "  # x", "<urn:s> .")] == [False, False, False, False, True]
