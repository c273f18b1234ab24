"""Lines of splits: each line in exactly one of them, wherever the cuts fall; which lines are no statements, and why."""

from __future__ import annotations

import gzip
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.errors import InvalidRequest
from brokerha.pipeline import loading_lines
from brokerha.pipeline.loading import LINE_LIMIT_BYTES
from brokerha.pipeline.loading_lines import Lines, lines_before, pieces
from brokerha.pipeline.loading_mapping import CsvForm, Mapping
from brokerha.pipeline.loading_plan import load_files, opened, splits_of
from brokerha.pipeline.loading_rdf import batch_of, fault, faults

GOOD = '<urn:s> <urn:p> "x" .'


def lines_of(content: bytes, start: int, end: int, lines_limit: int = 3, size_limit: int = 40) -> list[Lines]:
    file = io.BytesIO(content)
    return list(pieces(file, file, start, end, lines_limit, size_limit))


@given(st.lists(st.binary(max_size=12), max_size=30), st.integers(1, 40), st.booleans())
def test_splits_that_touch_have_each_line_once_and_in_order(parts, size, ends):
    content = b"\n".join(part.replace(b"\n", b"") for part in parts) + (b"\n" if ends else b"")
    starts = [*range(0, max(len(content), 1), size), len(content)]
    found = [line for start, end in pairwise(starts) for piece in lines_of(content, start, end) for line in piece.lines]
    assert found == [line + b"\n" for line in content.split(b"\n")[:-1]] + [
        line for line in content.split(b"\n")[-1:] if line
    ]


@given(st.binary(max_size=200).map(lambda text: text.replace(b"x", b"\n")), st.integers(0, 200), st.integers(0, 200))
def test_lines_are_counted_as_they_are_read(tmp_path_factory, content, one, other):
    start, end = sorted((min(one, len(content)), min(other, len(content))))
    path = tmp_path_factory.mktemp("count") / "file"
    path.write_bytes(content)
    assert lines_before(str(path), start, end) == sum(len(piece.lines) for piece in lines_of(content, start, end))


def test_pieces_end_at_their_number_of_lines_and_at_their_size():
    content = b"12345678\n" * 7
    assert [(piece.first_line, len(piece.lines), piece.position) for piece in lines_of(content, 0, -1)] == [
        (1, 3, 27), (4, 3, 54), (7, 1, 63),
    ]  # fmt: skip
    assert [len(piece.lines) for piece in lines_of(content, 0, -1, lines_limit=100, size_limit=20)] == [2, 2, 2, 1]


def test_a_line_that_is_too_long_is_cut_and_the_next_one_is_found(monkeypatch):
    monkeypatch.setattr(loading_lines, "LINE_LIMIT_BYTES", 10)
    monkeypatch.setattr(loading_lines, "_PIECE_BYTES", 4)
    [piece] = lines_of(b"x" * 50 + b"\nshort\n", 0, -1)
    assert piece.lines == [b"x" * 11, b"short\n"]
    assert piece.position == 57


@pytest.mark.parametrize(
    ("line", "syntax", "words"),
    [
        ("<urn:s> <urn:p> .", "nt", "object"),
        ("<urn:s> <urn:p> <urn:o> <urn:g> .", "nt", "may be a quad"),
        ("<urn:s> <urn:p> 'x' .", "nq", "column"),
        ('<urn:s> <urn:p> "x"', "nt", "dot"),
        ('<urn:s> "p" <urn:o> .', "nt", "predicate"),
        ("<s> <urn:p> <urn:o> .", "nt", "IRI"),
        (f"{GOOD} {GOOD}", "nt", "single"),
        (f"{GOOD}\r{GOOD}", "nt", "2 statements"),
        ("<urn:s> <urn:p> <urn:brokerha:x> .", "nt", "brokerha's own"),
        ("<urn:s> <urn:p> <urn:\\u0062rokerha:x> .", "nt", "brokerha's own"),
        ("<urn:s> <urn:p> " + "<<( <urn:s> <urn:p> " * 500 + "<urn:o>" + " )>>" * 500 + " .", "nt", "nested"),
        ('<urn:s> <urn:p> "\\uD800" .', "nt", "escape"),
    ],
)
def test_what_the_cluster_would_refuse_is_told_with_its_reason(line, syntax, words):
    assert words in fault(line, syntax)
    assert list(faults([GOOD, line, GOOD], syntax)) == [1]
    assert "line 1" not in fault(line, syntax)


@pytest.mark.parametrize(
    "line", [GOOD, '_:a <urn:p> "\\u00e4"@de . # so', "<urn:s> <urn:p> <<( <urn:s> <urn:p> 1 )>> ."]
)
def test_what_is_a_statement_is_taken(line):
    line = line.replace(" 1 ", ' "1" ')
    assert not fault(line, "nt")
    assert not faults([line] * 3, "nq")


def test_bad_lines_of_a_batch_are_rejects_with_their_numbers_and_the_others_are_sent():
    raw = [
        b"# a comment\n", b"\n", b"_:a <urn:p> _:b .\r\n", b"nothing\n", b"\xff\n", b" <urn:s> <urn:p> <urn:o> . # end\n",
        b"y" * (LINE_LIMIT_BYTES + 1),
    ]  # fmt: skip
    batch = batch_of(Lines(11, raw, 0), 4, "f.nt", "nt", "main", "", "px")
    assert batch.operations == [("add", "main", "_:pxa <urn:p> _:pxb .\n<urn:s> <urn:p> <urn:o> . # end\n")]
    assert (batch.number, batch.first_line, batch.last_line, batch.statements) == (4, 11, 17, 2)
    assert [(reject.line, reject.reason) for reject in batch.rejects] == [
        (14, "columns 1 to 8: The subject of a triple must be an IRI or a blank node"),
        (15, "not UTF-8 at byte 1"),
        (17, f"longer than {LINE_LIMIT_BYTES} bytes"),
    ]
    assert batch.rejects[1].text == "\\xff"
    assert len(batch.rejects[2].text) == 1000


def test_triples_go_into_the_graph_that_is_given():
    batch = batch_of(Lines(1, [GOOD.encode()], 0), 1, "f.nt", "nt", "main", "urn:g", "px")
    assert batch.operations == [("add", "main", '<urn:s> <urn:p> "x" <urn:g> .\n')]


def test_a_batch_of_comments_has_nothing_to_send():
    assert batch_of(Lines(1, [b"# one\n", b"  \n"], 0), 1, "f.nt", "nt", "main", "", "px").operations == []


def test_files_are_split_by_size_and_compressed_ones_are_not(tmp_path):
    (tmp_path / "a.nt").write_bytes(b"x" * 250)
    (tmp_path / "b.nq.gz").write_bytes(gzip.compress(b"y" * 250))
    (tmp_path / "c.csv").write_bytes(b"z" * 150)
    files = load_files(tuple(str(tmp_path / name) for name in ("a.nt", "b.nq.gz", "c.csv")), None)
    splits = splits_of(files, None, 100)
    assert [(one.name, one.syntax, one.start, one.end, one.first_line) for one in splits] == [
        ("00001-000001", "nt", 0, 100, 1),
        ("00001-000002", "nt", 100, 200, 0),
        ("00001-000003", "nt", 200, 250, 0),
        ("00002-000001", "nq", 0, -1, 1),
        ("00003-000001", "csv", 0, 100, 1),
        ("00003-000002", "csv", 100, 150, 0),
    ]
    assert sum(one.size_bytes for one in splits) == sum(file.size_bytes for file in files)
    assert len(splits_of(files[2:], Mapping(csv=CsvForm(has_line_breaks=True)), 100)) == 1


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_compressed_files_are_read_and_their_position_is_that_of_the_file_below(tmp_path, suffix):
    import importlib

    packed = importlib.import_module({".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}[suffix]).compress(b"one\ntwo\n")
    path = tmp_path / f"f.nt{suffix}"
    path.write_bytes(packed)
    content, raw = opened(str(path))
    with raw, content:
        [piece] = pieces(content, raw, 0, -1, 10, 100)
    assert piece.lines == [b"one\n", b"two\n"]
    assert 0 < piece.position <= len(packed)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("none.nt", None, "No such file"),
        ("data.ttl", None, "none of nt, nq, csv, parquet"),
        ("data", None, "no suffix"),
        ("data.ttl", "turtle", "none of nt, nq, csv, parquet"),
        ("data.parquet.gz", None, "unpack"),
    ],
)
def test_what_cannot_be_loaded_is_said_before_anything_is_sent(tmp_path, name, given, words):
    if name != "none.nt":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InvalidRequest, match=words):
        load_files((str(tmp_path / name),), given)


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InvalidRequest, match=r"a\.parquet is no Parquet file"):
        splits_of(load_files((str(tmp_path / "a.parquet"),), None), None, 100)


def test_another_content_under_the_same_name_and_size_is_another_file(tmp_path):
    path = tmp_path / "a.nt"
    path.write_bytes(b"a" * 10)
    [before] = load_files((str(path),), None)
    path.write_bytes(b"b" * 10)
    assert load_files((str(path),), None) != [before]
