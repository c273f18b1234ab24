"""A message that was in hand twice when the node ended is put aside; another one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.ingress.suspects import SLOTS, EndedTheNode, Suspects
from brokerha.model.errors import JournalError


def ends_with(directory: Path, *bodies: bytes) -> None:
    """A node that takes these in hand and is killed: its map of memory is all that stays."""
    Suspects(directory).take_in_hand(bodies)


def refused(suspects: Suspects, *bodies: bytes) -> list[bool]:
    found = []
    for digest in suspects.take_in_hand(bodies):
        try:
            suspects.check(digest)
            found.append(False)
        except EndedTheNode:
            found.append(True)
    suspects.put_down()
    return found


def test_the_second_time_is_the_last(tmp_path: Path) -> None:
    ends_with(tmp_path, b"poison", b"innocent")
    ends_with(tmp_path, b"poison", b"other")
    assert refused(Suspects(tmp_path), b"poison", b"innocent", b"other") == [True, False, False]
    assert refused(Suspects(tmp_path), b"poison") == [True]


def test_what_was_read_after_the_first_end_is_no_suspect_at_the_second(tmp_path: Path) -> None:
    for _ in range(3):
        ends_with(tmp_path, b"status", b"poison")
        assert refused(Suspects(tmp_path), b"status") == [False]
    # The file forgets as well; what was never read between two ends is still put aside.
    assert refused(Suspects(tmp_path), b"status", b"poison") == [False, True]


def test_what_was_put_down_is_no_suspect(tmp_path: Path) -> None:
    for _ in range(3):
        suspects = Suspects(tmp_path)
        suspects.take_in_hand([b"a", b"b"])
        suspects.put_down()
    assert Suspects(tmp_path).counts == {}


def test_more_messages_than_slots_are_taken_in_hand(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    assert len(suspects.take_in_hand([b"x"] * (SLOTS + 1))) == SLOTS + 1
    suspects.put_down()


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": "b"}', b"\xff"])
def test_a_damaged_file_lets_the_node_start(tmp_path: Path, damage: bytes) -> None:
    ends_with(tmp_path, b"poison")
    Suspects(tmp_path)
    (tmp_path / "suspects.json").write_bytes(damage)
    assert refused(Suspects(tmp_path), b"poison") == [False]


def test_without_a_directory_nothing_is_remembered() -> None:
    assert refused(Suspects(None), b"poison") == [False]


def test_a_file_that_cannot_be_written_is_an_error_of_the_directory_and_no_fault_of_brokerha(tmp_path: Path) -> None:
    ends_with(tmp_path, b"poison")
    (tmp_path / "in-hand").unlink()
    (tmp_path / "in-hand").mkdir()
    with pytest.raises(JournalError, match=f"the directory {tmp_path} of the journal cannot be used: .*Is a directory: .*in-hand"):
        Suspects(tmp_path)
