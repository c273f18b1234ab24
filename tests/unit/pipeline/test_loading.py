"""What of a load needs no Spark: syntaxes and ids, the mapping, and rows and files as the columns that the sink takes."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from brokerha.model.errors import ConfigurationError, InvalidRequest
from brokerha.pipeline.loading import LoadFile, LoadOptions, check_together, id_of, syntax_of
from brokerha.pipeline.loading_columns import CORRUPT, HEAD, PART, SOURCE, RowRefused, key_of, mapped, parsed, statements_of
from brokerha.pipeline.loading_mapping import ALL_COLUMNS, load_mapping, read_mapping

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


def rows(text: str, *given: dict[str, Any]) -> list[dict[str, Any]]:
    """What the sink is given for rows of a file, by a mapping."""
    batch = pa.Table.from_pylist([{SOURCE: "f", PART: "f.0", **one} for one in given]).to_batches()[0]
    return [row for found in mapped([batch], read_mapping(text, "m"), batch.schema.names) for row in found.to_pylist()]


# ---- rows


def test_a_row_becomes_statements_and_what_is_empty_is_left_out():
    one, two = rows(PEOPLE, {"id": "a b", "name": 'Ann "A", x', "age": "30", "city": "Linz"}, {"id": "2", "name": "", "age": None})
    assert one["statement"].splitlines() == [
        "<urn:person:a%20b> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:Person> .",
        '<urn:person:a%20b> <urn:name> "Ann \\"A\\", x"@en .',
        f'<urn:person:a%20b> <urn:age> "30"^^<{XSD}integer> .',
        "<urn:person:a%20b> <urn:home> <urn:city:Linz> .",
    ]
    assert two["statement"] == "<urn:person:2> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:Person> ."
    assert (one["source"], one["part"], one["reject"], one["text"]) == ("f", "f.0", None, None)


def test_bad_rows_are_rejects_with_their_reasons_and_the_others_stay():
    good = {"id": "1", "name": "A", "age": "1", "city": "x", CORRUPT: None}
    found = rows(
        PEOPLE, good, {**good, "id": ""}, {**good, "age": "old"}, {**good, CORRUPT: "3,Cid"}, {**good, CORRUPT: '4,"Dan,1,x'},
        {**good, CORRUPT: "6,\N{REPLACEMENT CHARACTER},1,x"}, good,
    )  # fmt: skip
    assert [(row["reject"] or "")[:44] for row in found] == [
        "", "column id is empty, and the subject needs it", "column age: 'old' is no xsd:integer",
        "it does not have the columns of its file, or", "a quotation in it does not end; if values ha", "not UTF-8", "",
    ]  # fmt: skip
    assert (found[3]["text"], json.loads(found[1]["text"])["name"]) == ("3,Cid", "A")


def test_a_letter_that_could_not_be_read_refuses_the_row_where_spark_reads_csv_itself():
    [row] = rows(PRICES + "[csv]\nline_breaks = true\n", {"sku": "\N{REPLACEMENT CHARACTER}", "country": "at", "price": "1"})
    assert row["reject"] == "not UTF-8"


def test_a_row_becomes_a_key():
    found = rows(PRICES, {"sku": "1", "country": "at", "price": "9.90"}, {"sku": "2", "country": None, "price": "5"})
    assert [(row["key"], row["value"], row["reject"]) for row in found] == [
        (b"at/1", b"9.90", None), (None, None, "column country is empty, and the key needs it"),
    ]  # fmt: skip
    [row] = rows(PRICES.replace('value = "price"', 'values = ["*"]'), {"sku": "1", "country": "at", "price": "9"})
    assert row["value"] == b'{"sku":"1","country":"at","price":"9"}'


def test_a_mapping_of_all_columns_needs_those_of_its_key():
    mapping = read_mapping(PRICES.replace('value = "price"', 'values = ["*"]'), "m")
    assert set(mapping.columns) == {ALL_COLUMNS, "country", "sku"}


def test_a_key_that_is_too_long_refuses_the_row():
    mapping = read_mapping(PRICES, "m")
    assert mapping.keys is not None
    with pytest.raises(RowRefused, match="bytes"):
        key_of({"country": "x" * 600, "sku": "1", "price": ""}, mapping.keys)


def test_labels_of_different_values_are_different():
    mapping = read_mapping('[quads]\nsubject = "_:{id}"\ntypes = ["urn:T"]\n', "m")
    assert mapping.quads is not None
    labels = {statements_of({"id": value}, mapping.quads)[0].split()[0] for value in ("a b", "a_20_b", "a_b", "a-b", "ä")}
    assert len(labels) == 5


def test_values_of_files_with_types_have_the_datatypes_that_they_have_by_nature():
    columns: dict[str, list[Any]] = {
        "id": [1, 2], "whole": [7, None], "real": [0.5, float("inf")], "truth": [True, False], "day": [dt.date(2024, 2, 29), None],
        "time": [dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), None], "exact": [Decimal("1.50"), None],
    }  # fmt: skip
    properties = "".join(f'[[quads.property]]\npredicate = "urn:{name}"\ncolumn = "{name}"\n' for name in list(columns)[1:])
    mapping = f'[quads]\nsubject = "urn:{{id}}"\ngraph = "urn:g:{{id}}"\n{properties}'
    given = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    found = [line for row in rows(mapping, *given) for line in row["statement"].splitlines()]
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


def test_a_value_that_is_no_single_one_refuses_the_row():
    [row] = rows(
        '[quads]\nsubject = "urn:{id}"\n[[quads.property]]\npredicate = "urn:n"\ncolumn = "name"\n', {"id": "1", "name": ["a"]}
    )
    assert row["reject"] == "column name: a value of type list cannot be a literal"


def test_a_value_that_python_cannot_hold_refuses_only_the_rows_that_need_it():
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["f"] * 3), pa.array(["f.0"] * 3), pa.array(["1", "2", "3"]), pa.array([0, 2932897, 1], pa.date32()),
            pa.array([b"a", b"b", b"\xff"]).view(pa.string()),
        ],
        [SOURCE, PART, "id", "day", "name"],
    )  # fmt: skip
    mapping = read_mapping('[keys]\ntable = "t"\nkey = "{id}"\nvalues = ["day"]\n', "m")
    found = [row for each in mapped([batch], mapping, batch.schema.names) for row in each.to_pylist()]
    assert [row["value"] for row in found] == [b'{"day":"1970-01-01"}', None, b'{"day":"1970-01-02"}']
    assert found[1]["reject"] == "column day: a value cannot be read: date value out of range"
    assert "date value out of range" in found[1]["text"]


def test_only_the_first_line_of_a_file_is_its_head():
    head = {"country": "country", "sku": "sku", "price": "price"}
    found = rows(PRICES, *({**head, HEAD: is_head} for is_head in (True, True, False)))
    assert [row["key"] for row in found] == [b"country/sku"] * 2


# ---- files that only a parser can read


def statements_in(path: Path, syntax: str) -> list[dict[str, Any]]:
    return [row for batch in parsed(str(path), syntax, "f") for row in batch.to_pylist()]


def test_turtle_is_read_as_statements_the_same_each_time(tmp_path):
    path = tmp_path / "a.ttl.gz"
    path.write_bytes(gzip.compress(b"@prefix : <urn:x:> . :a :b [ :c [] ], 1 ."))
    found = statements_in(path, "ttl")
    assert sorted(row["statement"] for row in found) == [
        '<urn:x:a> <urn:x:b> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .', "<urn:x:a> <urn:x:b> _:1 .", "_:1 <urn:x:c> _:2 .",
    ]  # fmt: skip
    assert statements_in(path, "ttl") == found


def test_where_a_parser_stops_is_a_reject_behind_what_it_has_read(tmp_path):
    path = tmp_path / "a.ttl"
    path.write_text("<urn:a> <urn:b> <urn:c> . oops")
    one, two = statements_in(path, "ttl")
    assert one["statement"] == "<urn:a> <urn:b> <urn:c> ."
    assert (two["statement"], two["reject"][:24]) == (None, "the input is not TURTLE:")
    assert two["reject"].endswith("; what comes after it in this file is not loaded")
    assert statements_in(tmp_path / "none.ttl", "ttl")[0]["reject"]


# ---- syntaxes, ids, mappings


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a.doc", None, "'doc' is none of"), ("a", None, "'no suffix' is none of"), ("a.nt.xz", None, "Spark reads no xz"),
        ("a.nt", "turtles", "'turtles' is none of"), ("a.parquet.gz", None, "compressed inside"),
    ],
)  # fmt: skip
def test_a_syntax_that_is_not_read_is_named(name, given, words):
    with pytest.raises(InvalidRequest, match=words):
        syntax_of(name, given)


@pytest.mark.parametrize(
    ("syntax", "options", "words"),
    [
        ("nq", {"graph": "urn:g"}, "names its graphs itself"), ("csv", {}, "--mapping"), ("nt", {"mapping": "m"}, "none of the files is one"),
        ("csv", {"mapping": "m", "graph": "urn:g"}, "leave out --graph"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_said_before_anything_is_read(syntax, options, words):
    with pytest.raises(InvalidRequest, match=words):
        check_together(LoadOptions(("f",), "x", **options), [LoadFile("/f", syntax, 1, 1)])


def test_a_load_has_the_id_of_its_files_and_options():
    options, file = LoadOptions(("f",), "x"), LoadFile("/f", "nt", 1, 1)
    same = id_of(replace(options, window=3, url="y", max_rejects=9), [file], None)
    assert same == id_of(options, [file], None)
    others = {
        id_of(options, [file._replace(size_bytes=2)], None), id_of(options, [file._replace(modified_us=2)], None),
        id_of(replace(options, repository="r"), [file], None), id_of(options, [file], read_mapping(PRICES, "m")),
    }  # fmt: skip
    assert len(others | {same}) == 5


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
        (PEOPLE.replace('language = "en"', f'language = "en"\ndatatype = "{XSD}string"'), "one of datatype and language"),
        (PEOPLE + 'language = "en"\n', "an object is an IRI"),
        (PEOPLE.replace(f"{XSD}integer", "xsd:intger"), f"datatype 'xsd:intger' is none of XML Schema: write {XSD}integer"),
        (PEOPLE.replace(f"{XSD}integer", "xsd:integer"), f"is none of XML Schema: write {XSD}integer"),
        (PEOPLE.replace(f"{XSD}integer", f"{XSD}datetime"), f"is none of XML Schema: write {XSD}dateTime"),
        (PEOPLE.replace("XMLSchema#integer", "XMLSchema/integer"), f"is none of XML Schema: write {XSD}integer"),
        (PEOPLE.replace(f"{XSD}integer", f"{XSD}number9"), f"write {XSD} and one of ENTITY, "),
        (PEOPLE.replace(f"{XSD}integer", "integer"), "datatype 'integer' is no absolute IRI"),
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


def test_a_datatype_of_somebody_else_is_taken_as_it_is():
    mapping = read_mapping(PEOPLE.replace(f"{XSD}integer", "https://example.org/types#age"), "m")
    assert mapping.quads is not None
    assert mapping.quads.properties[1].datatype == "https://example.org/types#age"


def test_a_mapping_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        load_mapping(tmp_path / "none.toml")


def test_braces_stand_for_themselves_when_doubled():
    mapping = read_mapping('[keys]\ntable = "t"\nkey = "{{{id}}}"\nvalue = "id"', "m")
    assert mapping.keys is not None
    assert key_of({"id": "7"}, mapping.keys)[2] == b"{7}"
