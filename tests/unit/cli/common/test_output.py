"""What commands write and read: formats, inputs, progress."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pytest
import typer

from brokerha.cli.common.inputs import opened, plain_suffix, read_bytes, read_text
from brokerha.cli.common.output import Format, counted, shown, time_text, tsv_cell, write, yaml_text
from brokerha.cli.common.terminal import progress
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import BODY_LIMIT_BYTES

ROWS = [{"id": "m1", "text": "a\tb\nc\\", "none": None, "number": 1234567}, {"id": "m2", "text": "ä", "none": None, "number": 2}]


@pytest.fixture
def standard_input(monkeypatch):
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


# ---- writing


def test_json_is_one_line_of_everything(capsys):
    write({"rows": ROWS}, ROWS, Format.JSON, {})
    assert capsys.readouterr().out.count("\n") == 1


def test_tsv_escapes_what_would_break_a_line(capsys):
    write({}, ROWS, Format.TSV, {})
    assert capsys.readouterr().out == "id\ttext\tnone\tnumber\nm1\ta\\tb\\nc\\\\\t\t1234567\nm2\tä\t\t2\n"


def test_no_rows_are_no_tsv(capsys):
    write({}, [], Format.TSV, {})
    assert capsys.readouterr().out == ""


def test_a_table_has_the_chosen_columns_and_is_not_cut_in_a_pipe(capsys):
    write({}, [{"id": "m1", "text": "x" * 150, "other": 1}], Format.TABLE, {"id": "NODE", "text": "TEXT"})
    lines = [each.rstrip() for each in capsys.readouterr().out.splitlines()]
    assert lines == ["NODE  TEXT", "m1    " + "x" * 150]


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (True, "yes"), (False, "no"), (1234567, "1,234,567"), (0.25, "0.25"), ("m1", "m1")]
)
def test_people_see_separated_thousands_and_no_none(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"a": {"b": [1, {"c": None, "d": "yes"}]}}, 'a:\n  b:\n    - 1\n    - c: null\n      d: "yes"'),
        ([[1, 2], []], "- - 1\n  - 2\n- []"),
        ({}, "{}"),
        ({"a": {}}, "a: {}"),
        (
            {"text": "on: fire # not a comment", "word": "ok", "number": "12", "empty": ""},
            'text: "on: fire # not a comment"\nword: ok\nnumber: "12"\nempty: ""',
        ),
        ({"line": "a\nb", "umlaut": "Größe"}, 'line: "a\\nb"\numlaut: "Größe"'),
        ({"1": True}, '"1": true'),
    ],
)
def test_yaml_quotes_whatever_could_mean_something_else(data, text):
    assert yaml_text(data) == text


def test_numbers_have_their_noun_and_timestamps_are_readable():
    assert [counted(1, "line"), counted(1200, "line")] == ["1 line", "1,200 lines"]
    assert time_text(1_795_234_542_116_798) == "2026-11-21 04:15:42.116798"


def test_tsv_cells_of_structures_are_json():
    assert tsv_cell({"a": [1]}) == '{"a": [1]}'


# ---- reading


def test_input_is_an_argument_a_file_or_standard_input(tmp_path, standard_input):
    file = tmp_path / "update.rq"
    file.write_text("from a file")
    standard_input(b"from outside")
    assert read_text("as it is", None, "the update") == "as it is"
    assert read_text(None, file, "the update") == "from a file"
    assert read_text("-", None, "the update") == "from outside"
    standard_input(b"from outside")
    assert read_text(None, Path("-"), "the update") == "from outside"


@pytest.mark.parametrize(("argument", "file"), [(None, None), ("x", Path("y"))])
def test_none_or_two_inputs_are_a_usage_error(argument, file):
    with pytest.raises(typer.BadParameter, match="give the update as one argument, as --file FILE, or as - for standard input"):
        read_text(argument, file, "the update")


def test_input_that_is_not_utf8_names_the_byte(standard_input):
    standard_input(b"INSERT \xff")
    with pytest.raises(InvalidRequest, match="the update is not UTF-8: byte 7 is 0xff"):
        read_text("-", None, "the update")


def test_input_beyond_one_transaction_is_refused(standard_input):
    standard_input(b"x" * (BODY_LIMIT_BYTES + 1))
    with pytest.raises(TooLarge, match="the value is larger than"):
        read_bytes("-", None, "the value")


def test_a_file_that_is_missing_or_damaged_is_a_usage_error(tmp_path):
    (tmp_path / "broken.gz").write_bytes(b"no gzip")
    for name, reason in (("none.nt", "No such file"), ("broken.gz", "Not a gzipped file")):
        with pytest.raises(typer.BadParameter, match=reason), opened(str(tmp_path / name)) as source:
            source.content.read()


def test_compressed_files_are_read_by_their_suffix(tmp_path):
    path = tmp_path / "data.nt.gz"
    path.write_bytes(gzip.compress(b"<a:a> <a:a> <a:a> .\n"))
    with opened(str(path)) as source:
        assert source.content.read() == b"<a:a> <a:a> <a:a> .\n"
    assert [plain_suffix(name) for name in ("x.nt.xz", "x.NQ", "x", "-")] == [".nt", ".nq", "", ""]


# ---- progress


def test_progress_is_quiet_outside_of_a_terminal(capsys):
    with progress("lines", 10, "lines") as meter:
        meter.advance(10)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_progress_on_a_terminal_shows_the_rate_and_leaves_nothing_on_standard_output(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("lines", 10, "lines") as meter:
        meter.advance(10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "lines/s" in captured.err
