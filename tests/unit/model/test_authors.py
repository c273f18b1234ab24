"""Who wrote a transaction: the last operation of its body, which a door adds and a client cannot."""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import (
    BODY_LIMIT_BYTES,
    OPERATIONS_LIMIT,
    USER_LIMIT_BYTES,
    By,
    pack_operations,
    unpack_operations,
    user_problem,
)
from brokerha.model.outside.authors import author_in, signed, taken_author
from brokerha.nodes.front.checking import checked_body

PUT = ("put", "t", b"k", b"v")


@pytest.mark.parametrize("count", [1, 14, 15, 16, 65_535, OPERATIONS_LIMIT - 1])
def test_it_is_the_last_operation_however_many_there_are(count: int) -> None:
    body = pack_operations([PUT] * count)

    operations = unpack_operations(signed(body, "anna"))

    assert (len(operations), author_in(operations)) == (count + 1, "anna")
    assert taken_author(operations) == [By("by", "anna")]
    assert operations == unpack_operations(body)


def test_nobody_is_no_operation() -> None:
    body = pack_operations([PUT])

    assert signed(body, "") == body
    assert (author_in(unpack_operations(body)), taken_author(unpack_operations(body)), author_in([])) == ("", [], "")


def test_there_has_to_be_room_for_it() -> None:
    with pytest.raises(TooLarge, match="99999"):
        signed(pack_operations([PUT] * OPERATIONS_LIMIT), "anna")
    value = b"v" * (BODY_LIMIT_BYTES - len(pack_operations([("put", "t", b"k", b"v" * 70_000)])) + 70_000)
    full = pack_operations([("put", "t", b"k", value)])
    assert len(full) == BODY_LIMIT_BYTES
    with pytest.raises(TooLarge, match="the limit is"):
        signed(full, "anna")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (USER_LIMIT_BYTES + 1), "ä" * USER_LIMIT_BYTES])
def test_names_that_are_none(name: str) -> None:
    assert user_problem(name)


@pytest.mark.parametrize("pack", [list, pack_operations])
def test_a_client_cannot_say_it_and_the_door_does(pack) -> None:
    assert author_in(unpack_operations(checked_body(pack([PUT]), "anna"))) == "anna"
    for user in ("", "bert"):
        with pytest.raises(InvalidRequest, match="who writes is said by the door"):
            checked_body(pack([PUT, ("by", "anna")]), user)
