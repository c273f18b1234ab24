"""Claims as rows: what they say, and that any bytes are judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import check_operations, typed_operations
from brokerha.model.reserved.claims import EMPTY, Claim, Claims, claimed, claims_in, packed, problem_of
from brokerha.nodes.front.checking import check_texts

MASTERS = st.sampled_from(["m1", "m2", "m3"])
IDS = st.lists(st.sampled_from([f"t.{number}" for number in range(1, 9)]), max_size=5, unique=True)


@given(st.lists(st.tuples(MASTERS, IDS, st.lists(MASTERS, max_size=2)), max_size=8))
def test_each_master_has_what_it_claimed_last_unless_it_expired(steps: list[tuple[str, list[str], list[str]]]) -> None:
    row: Claims = EMPTY
    wanted: dict[str, Claim] = {}
    for lsn, (master, ids, expired) in enumerate(steps, 1):
        row = claimed(row, master, ids, lsn, expired)
        wanted = {each: claim for each, claim in wanted.items() if each not in expired}
        wanted[master] = Claim(lsn, tuple(ids))
        value = packed(row)
        assert (EMPTY if value is None else claims_in(value)) == {each: claim for each, claim in row.items() if claim.ids}
        assert value is None or problem_of(b"q", value) == ""
    assert dict(row) == wanted


@given(st.binary(max_size=20), st.binary(max_size=200))
def test_any_key_and_value_is_judged(key: bytes, value: bytes) -> None:
    assert isinstance(problem_of(key, value), str)


def test_nobody_but_nodes_writes_them() -> None:
    with pytest.raises(InvalidRequest, match="take messages with accept"):
        check_texts(typed_operations([("delete", "urn:brokerha:claims", b"q")]))
    with pytest.raises(InvalidRequest, match="no snapshot shows"):
        check_operations([("snapshot", "s", "urn:brokerha:claims")])
