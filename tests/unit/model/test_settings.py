"""Settings at run time: which there are, and what of them is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import check_operations
from brokerha.model.reserved import settings
from brokerha.model.reserved.settings import SETTINGS, TABLE, Row, packed, problem_of, row_in, text_of, value_of, value_problem

ROW = Row("2000", "anna", 1_700_000_000_000_000, "127.0.0.1, by m1")


def test_a_row_says_what_who_when_and_from_where():
    assert row_in(packed(ROW)) == ROW
    assert row_in(packed(ROW._replace(value=None))).value is None
    assert problem_of(b"idle-round-ms", packed(ROW)) == ""
    assert problem_of(b"idle-round-ms", packed(ROW._replace(value=None))) == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("idle-round", "1", "there is no setting 'idle-round': did you mean idle-round-ms?"),
        ("broker", "amqp://h", "the cluster file has the others"),
        ("idle-round-ms", "0", "a whole number of milliseconds, 1 to 600000, not '0'"),
        ("idle-round-ms", "2.5", "a whole number"),
        ("idle-round-ms", "2s", "not '2s'"),
        ("idle-round-ms", "٣", "a whole number"),
        ("idle-round-ms", "", "not ''"),
        ("max-peer-lag-s", "nan", "a number of seconds, 0.1 to 3600"),
        ("max-peer-lag-s", "1e3", "not '1e3'"),
        ("tx-log-max-size", "999", "at least 1000"),
        ("lost-backup", "give-up", "one of continue, abort"),
        ("log-stream", "yes", "true or false"),
    ],
)
def test_a_bad_name_value_or_unit_is_one_clear_sentence(name: str, value: str, said: str):
    assert said in value_problem(name, value)
    with pytest.raises(InvalidRequest):
        check_operations([("put", TABLE, name.encode(), packed(ROW._replace(value=value)))])


@pytest.mark.parametrize(
    "value",
    [
        b"2000",
        b"{",
        b"[" * 100_000,
        b'{"value":"2000"}',
        b'{"at":1,"by":"","from":"","value":2000}',
        b'{"at":-1,"by":"","from":"","value":"2000"}',
        b'{"at":1,"by":"\\n","from":"","value":"2000"}',
        b'{"at":1,"by":"' + b"x" * 201 + b'","from":"","value":"2000"}',
    ],
)
def test_what_no_node_makes_is_no_row(value: bytes):
    assert problem_of(b"idle-round-ms", value)


def test_a_row_is_never_deleted():
    assert "never deleted" in problem_of(b"idle-round-ms", None)


@given(st.binary(max_size=80), st.binary(max_size=200))
def test_any_key_and_value_is_judged(key: bytes, value: bytes):
    assert problem_of(key, value)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_bounds_of_each_are_good_values(name: str):
    limits = SETTINGS[name]
    values = limits.choices or ("true", "false") if limits.type in {str, bool} else (limits.low, limits.high or limits.low)
    for value in values:
        text = value if isinstance(value, str) else text_of(limits.type(value))
        assert value_problem(name, text) == ""
        assert text_of(value_of(name, text)) == text


def test_tables_of_settings_are_shown_by_no_snapshot():
    with pytest.raises(InvalidRequest, match="no snapshot shows"):
        check_operations([("snapshot", "s", settings.TABLE)])
