"""Who wrote a transaction: the last operation of its body, which a door adds and a client cannot."""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operation_checks import USER_LIMIT_BYTES, user_problem
from brokerha.model.operations import BODY_LIMIT_BYTES, OPERATIONS_LIMIT, By, Operation, pack_operations, unpack_operations
from brokerha.model.outside.authors import author_in, is_same_work, signed, taken_author, unsigned
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


@pytest.mark.parametrize(
    "operations",
    [
        [PUT],
        [PUT] * 15,
        [PUT] * 16,
        [("put", "t", b"k", b"\x92\xa2by\xa4anna")],
        [("publish", "q", "", b"\x92\xa2by\xa4anna"), ("accept", "q", "x.1")],
        [("put", "t", b"k", b"\x92\xa2by")],
    ],
)
def test_who_sends_a_write_again_makes_no_other_of_it(operations: list[Operation]) -> None:
    body = pack_operations(operations)

    assert [unsigned(each) for each in (body, signed(body, "anna"), signed(body, "ä" * 100))] == [body] * 3
    assert is_same_work(signed(body, "anna"), signed(body, "bert"))
    assert is_same_work(body, signed(body, "bert"))
    assert not is_same_work(signed(body, "anna"), signed(pack_operations([*operations, PUT]), "anna"))
    assert not is_same_work(body, signed(pack_operations([PUT, *operations]), "anna"))


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
