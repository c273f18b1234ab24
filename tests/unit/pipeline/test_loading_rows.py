"""Rows of CSV and Parquet: what they become by a mapping, which are refused and why, and that splits do not matter."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from brokerha.model.errors import ConfigurationError, InvalidRequest
from brokerha.pipeline.loading import Batch, LoadJob
from brokerha.pipeline.loading_mapping import Mapping, load_mapping, read_mapping
from brokerha.pipeline.loading_plan import load_files, splits_of
from brokerha.pipeline.loading_rows import head_of, row_batches
from brokerha.pipeline.loading_split import batches_of
from brokerha.pipeline.loading_terms import RowRefused, key_of, statements_of

XSD = "http://www.w3.org/2001/XMLSchema#"
PEOPLE = """
[quads]
subject = "urn:person:{id}"
types = ["urn:Person"]
[[quads.property]]
predicate = "urn:name"
column = "name"
language = "en"
[[quads.property]]
predicate = "urn:age"
column = "age"
datatype = "http://www.w3.org/2001/XMLSchema#integer"
[[quads.property]]
predicate = "urn:home"
object = "urn:city:{city}"
"""
PRICES = '[keys]\ntable = "prices"\nkey = "{country}/{sku}"\nvalue = "price"\n'


def job_for(mapping: Mapping, columns: dict[int, tuple[str, ...]]) -> LoadJob:
    return LoadJob("run", "load-1", "", "", "main", "", mapping, columns)


def batches(path: Path, text: str, split_bytes: int = 1 << 20) -> list[Batch]:
    mapping = read_mapping(text, "m")
    files = load_files((str(path),), None)
    job = job_for(mapping, {1: head_of(files[0], mapping)})
    return [batch for split in splits_of(files, mapping, split_bytes) for batch in batches_of(split, job)]


def sent(found: list[Batch]) -> list[Any]:
    """Statements, or puts, of all batches."""
    operations = [operation for batch in found for operation in batch.operations]
    return [
        line for operation in operations
        for line in (operation[2].splitlines() if operation[0] == "add" else [operation])
    ]  # fmt: skip


def rejects(found: list[Batch]) -> list[tuple[int, str]]:
    return [(reject.line, reject.reason) for batch in found for reject in batch.rejects]


def test_a_row_becomes_statements_and_what_is_empty_is_left_out(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('\ufeffid,name,age,city\na b,"Ann ""A"", x",30,Linz\n2,,,\n')
    assert sent(batches(path, PEOPLE)) == [
        "<urn:person:a%20b> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:Person> .",
        '<urn:person:a%20b> <urn:name> "Ann \\"A\\", x"@en .',
        f'<urn:person:a%20b> <urn:age> "30"^^<{XSD}integer> .',
        "<urn:person:a%20b> <urn:home> <urn:city:Linz> .",
        "<urn:person:2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:Person> .",
    ]


def test_bad_rows_are_rejects_with_their_lines_and_reasons(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(
        b'id,name,age,city\n,Ann,1,x\n2,Bob,old,x\n3,Cid\n4,"Dan,1,x\n5,Eve,5,x\n6,\xff,1,x\n7,"F"f,1,x\n\n9,Gus,9,x\n'
    )
    found = batches(path, PEOPLE)
    assert [(line, reason[:40]) for line, reason in rejects(found)] == [
        (2, "column id is empty, and the subject need"),
        (3, "column age: 'old' is no xsd:integer"),
        (4, "2 fields, and the file has 4 columns"),
        (5, "it begins a quotation and does not end i"),
        (7, "not UTF-8 at byte 3"),
        (8, "',' expected after '\"'"),
    ]
    assert len(sent(found)) == 8
    assert found[-1].last_line == 10


def test_a_value_that_makes_no_iri_refuses_the_row(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("id,to\n1,urn:x\n2,no iri\n3,urn:y\n")
    mapping = '[quads]\nsubject = "urn:{id}"\n[[quads.property]]\npredicate = "urn:to"\nobject = "{+to}"\n'
    found = batches(path, mapping)
    assert sent(found) == ["<urn:1> <urn:to> <urn:x> .", "<urn:3> <urn:to> <urn:y> ."]
    [(line, reason)] = rejects(found)
    assert line == 3
    assert "<no iri>" in reason


def test_blank_nodes_of_rows_are_the_same_in_all_splits_of_a_file(tmp_path):
    path = tmp_path / "tree.csv"
    path.write_text("id,up\n" + "".join(f"n{number},n{number // 2}\n" for number in range(100)))
    mapping = '[quads]\nsubject = "_:{id}"\n[[quads.property]]\npredicate = "urn:up"\nobject = "_:{up}"\n'
    whole, split = sent(batches(path, mapping)), sent(batches(path, mapping, split_bytes=64))
    assert whole == split
    assert whole[1].split()[2] == whole[0].split()[0]


def test_labels_of_different_values_are_different():
    mapping = read_mapping('[quads]\nsubject = "_:{id}"\ntypes = ["urn:T"]\n', "m")
    assert mapping.quads is not None
    labels = {
        statements_of({"id": value}, mapping.quads)[0].split()[0] for value in ("a b", "a_20_b", "a_b", "a-b", "ä")
    }
    assert len(labels) == 5


def test_values_may_have_line_breaks_where_the_mapping_says_so(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(b'id;name;age;city\n1;"Ann\nA";3;x\n2;Bob\n3;\xff;1;x\n4;"Dan";4;y\n')
    found = batches(path, PEOPLE + '[csv]\ndelimiter = ";"\nline_breaks = true\n', split_bytes=10)
    assert '<urn:person:1> <urn:name> "Ann\\nA"@en .' in sent(found)
    assert len(sent(found)) == 8
    assert rejects(found) == [(4, "2 fields, and the file has 4 columns"), (5, "not UTF-8")]


def test_a_row_becomes_a_key(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("sku,country,price,tax\n1,at,9.90,20\n2,,5,20\n3,de,,19\n")
    found = batches(path, PRICES)
    assert sent(found) == [("put", "prices", b"at/1", b"9.90"), ("put", "prices", b"de/3", b"")]
    assert rejects(found) == [(3, "column country is empty, and the key needs it")]
    found = batches(path, PRICES.replace('value = "price"', 'values = ["price", "tax"]'))
    assert sent(found)[0][3] == b'{"price":"9.90","tax":"20"}'
    found = batches(path, PRICES.replace('value = "price"', 'values = ["*"]').replace("{country}/", ""))
    assert sent(found)[1][3] == b'{"sku":"2","country":"","price":"5","tax":"20"}'


def test_a_key_that_is_too_long_refuses_the_row():
    mapping = read_mapping(PRICES, "m")
    assert mapping.keys is not None
    with pytest.raises(RowRefused, match="bytes"):
        key_of({"country": "x" * 600, "sku": "1", "price": ""}, mapping.keys)


def test_columns_can_be_named_by_the_mapping(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("1,at,9\n2,de,8\n")
    found = batches(path, PRICES + '[csv]\ncolumns = ["sku", "country", "price"]\n')
    assert [operation[2] for operation in sent(found)] == [b"at/1", b"de/2"]


def test_parquet_values_have_the_datatypes_that_they_have_by_nature(tmp_path):
    path = tmp_path / "things.parquet"
    columns: dict[str, list[Any]] = {
        "id": [1, 2], "whole": [7, None], "real": [0.5, float("inf")], "truth": [True, False], "day": [dt.date(2024, 2, 29), None],
        "time": [dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), None], "exact": [Decimal("1.50"), None],
    }  # fmt: skip
    parquet.write_table(pa.table(columns), path)
    properties = "".join(
        f'[[quads.property]]\npredicate = "urn:{name}"\ncolumn = "{name}"\n' for name in list(columns)[1:]
    )
    found = sent(batches(path, f'[quads]\nsubject = "urn:{{id}}"\ngraph = "urn:g:{{id}}"\n{properties}'))
    assert found == [
        f'<urn:1> <urn:whole> "7"^^<{XSD}integer> <urn:g:1> .',
        f'<urn:1> <urn:real> "0.5"^^<{XSD}double> <urn:g:1> .',
        f'<urn:1> <urn:truth> "true"^^<{XSD}boolean> <urn:g:1> .',
        f'<urn:1> <urn:day> "2024-02-29"^^<{XSD}date> <urn:g:1> .',
        f'<urn:1> <urn:time> "2024-02-29T12:30:00Z"^^<{XSD}dateTime> <urn:g:1> .',
        f'<urn:1> <urn:exact> "1.50"^^<{XSD}decimal> <urn:g:1> .',
        f'<urn:2> <urn:real> "INF"^^<{XSD}double> <urn:g:2> .',
        f'<urn:2> <urn:truth> "false"^^<{XSD}boolean> <urn:g:2> .',
    ]


def test_parquet_is_split_by_row_groups_and_counts_rows(tmp_path):
    path = tmp_path / "prices.parquet"
    table = pa.table(
        {"sku": [str(n) for n in range(100)], "country": ["at"] * 99 + [None], "price": [b"\x00\xff"] * 100}
    )
    parquet.write_table(table, path, row_group_size=30)
    mapping = read_mapping(PRICES, "m")
    files = load_files((str(path),), None)
    splits = splits_of(files, mapping, 1)
    assert [(one.start, one.end, one.first_line) for one in splits] == [(0, 1, 1), (1, 2, 31), (2, 3, 61), (3, 4, 91)]
    found = [
        batch for split in splits for batch in row_batches(split, job_for(mapping, {1: head_of(files[0], mapping)}))
    ]
    assert [operation[2] for operation in sent(found)] == [f"at/{n}".encode() for n in range(99)]
    assert sent(found)[0][3] == b"\x00\xff"
    assert rejects(found) == [(10, "column country is empty, and the key needs it")]
    assert '"sku": "99"' in found[-1].rejects[0].text


def test_a_value_that_is_no_single_one_refuses_the_row(tmp_path):
    path = tmp_path / "lists.parquet"
    parquet.write_table(pa.table({"id": [1], "name": [["a", "b"]]}), path)
    found = batches(path, '[quads]\nsubject = "urn:{id}"\n[[quads.property]]\npredicate = "urn:n"\ncolumn = "name"\n')
    assert rejects(found) == [(1, "column name: a value of type list cannot be a literal")]


def test_batches_end_at_a_thousand_statements_and_no_row_is_cut(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("id,name,age,city\n" + "".join(f"{number},N,1,x\n" for number in range(1001)) + ",,,\n" * 1200)
    found = batches(path, PEOPLE)
    assert [batch.statements for batch in found[:5]] == [1000, 1000, 1000, 1000, 4]
    assert [(batch.first_line, batch.last_line) for batch in found[:2]] == [(1, 251), (252, 501)]
    assert max(len(batch.rejects) for batch in found) <= 1000
    assert [batch.number for batch in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "one of the sections"),
        (PEOPLE + PRICES, "one of the sections"),
        ("quads = 1", "quads is a section"),
        ("[quads", "Expected"),
        ('[quads]\nsubject = "urn:{id}"', "neither types"),
        ('[quads]\ntypes = ["urn:T"]', "subject is missing"),
        ('[quads]\nsubject = "urn:{id"\ntypes = ["urn:T"]', "single brace"),
        ('[quads]\nsubject = "urn:{id}"\ntypes = ["T"]', "no absolute IRI"),
        ('[quads]\nsubject = "urn:{id}"\ntypes = "urn:T"', "list of texts"),
        ('[quads]\nsubject = "urn:{id}"\ntypes = ["urn:T"]\nsubjects = 1', "unknown field 'subjects'"),
        ('[quads]\nsubject = "urn:x"\n[[quads.property]]\npredicate = "urn:p"', "number 1: write one of column"),
        (PEOPLE.replace('language = "en"', 'language = "e n"'), "no language tag"),
        (
            PEOPLE.replace('language = "en"', f'language = "en"\ndatatype = "{XSD}string"'),
            "one of datatype and language",
        ),
        (PEOPLE + 'language = "en"\n', "an object is an IRI"),
        ('[keys]\ntable = "t"\nkey = "{id}"', "one of value"),
        (PRICES + '[csv]\ndelimiter = ";;"', "one character"),
        (PRICES + "[csv]\nline_breaks = 1", "true or false"),
        (PRICES + "[other]\n", "unknown field 'other'"),
    ],
)
def test_a_mistake_in_a_mapping_is_named(text, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_mapping(text, "people.toml")
    assert str(caught.value).startswith("people.toml: ")


def test_a_mapping_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        load_mapping(tmp_path / "none.toml")


def test_braces_stand_for_themselves_when_doubled():
    mapping = read_mapping('[keys]\ntable = "t"\nkey = "{{{id}}}"\nvalue = "id"', "m")
    assert mapping.keys is not None
    assert key_of({"id": "7"}, mapping.keys)[2] == b"{7}"


def test_a_column_that_is_not_there_is_named_before_anything_is_read(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("sku,price\n")
    with pytest.raises(InvalidRequest, match=r"no column 'country'; it has sku, price"):
        head_of(load_files((str(path),), None)[0], read_mapping(PRICES, "m"))


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "prices.parquet"
    parquet.write_table(pa.table({"sku": ["1"] * 1000, "country": ["at"] * 1000, "price": ["9"] * 1000}), path)
    content = bytearray(path.read_bytes())
    content[10:60] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"prices\.parquet is damaged"):
        batches(path, PRICES)
