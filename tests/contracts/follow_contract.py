"""What every journal does for the processes of one master: views, prepared transactions, promises, and one that follows another."""

from __future__ import annotations

from typing import Protocol

import pytest

from brokerha.log import current
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.invariants import InvariantBroken
from brokerha.model.records import (
    VIEWS_KEPT,
    Accepted,
    ClockReserved,
    Outcomes,
    Record,
    Rest,
    Started,
    TxDecided,
    TxForgotten,
    TxPrepared,
    ViewStarted,
)
from brokerha.model.wire.codec import decode_record, encode_record
from brokerha.ports.journal import Journal
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, everything, filled

MUCH = 1 << 30
TXIDS = [f"t{n}" for n in range(1, 30)]


class TwinDisk(Disk, Protocol):
    """A disk beside which another process of the same master has its own."""

    def twin(self) -> Disk:
        """An empty journal with the same name."""


def prepared(txid: str, body: bytes = b"body") -> TxPrepared:
    """A prepared transaction with two participants."""
    return TxPrepared(txid, f"1:{txid.encode().hex()}:", body, ("m1-b", "m1-c"), 1_790_000_000_000_000)


def rolled_back(txid: str, *, by_hand: bool = False) -> TxDecided:
    return TxDecided(txid, is_commit=False, reason="asked for", is_heuristic=by_hand)


def committed(txid: str, *, by_hand: bool = False) -> TxDecided:
    return TxDecided(txid, is_commit=True, reason="", is_heuristic=by_hand)


def carried(source: Journal, first: int = 1, limit_bytes: int = MUCH) -> list[tuple[int, Record]]:
    """Records of a journal from a number on, as another process gets them."""
    found = source.numbered(first, source.last_number, limit_bytes)
    assert found is not None
    return [(number, decode_record(data)) for number, data in found]


def numbers(source: Journal, first: int, last: int, limit_bytes: int = MUCH) -> list[int] | None:
    found = source.numbered(first, last, limit_bytes)
    return None if found is None else [number for number, _ in found]


class DecisionsContract:
    """Views, prepared transactions, decisions, promises; subclasses give the fixture ``disk``."""

    def test_the_last_number_is_that_of_the_last_record(self, disk: Disk) -> None:
        assert disk.journal.last_number == disk.journal.state().last_number == 0
        disk.journal.append([Started(1), ClockReserved(5)])
        for journal in around_restart(disk):
            assert journal.last_number == journal.state().last_number == 2

    def test_views_are_remembered_with_the_numbers_where_they_began(self, disk: Disk) -> None:
        disk.journal.append([ViewStarted(10, "m1"), Started(1)])
        disk.journal.append([ViewStarted(21, "m1-b")])
        for journal in around_restart(disk):
            assert journal.state().views == ((10, 1), (21, 3))

    def test_only_the_last_views_are_remembered(self, disk: Disk) -> None:
        disk.journal.append([ViewStarted(view, "m1") for view in range(1, VIEWS_KEPT + 4)])
        for journal in around_restart(disk):
            assert journal.state().views == tuple((view, view) for view in range(4, VIEWS_KEPT + 4))

    def test_a_view_that_is_not_above_the_last_one_is_a_fault_and_changes_nothing(self, disk: Disk) -> None:
        disk.journal.append([ViewStarted(21, "m1-b")])
        for view in (20, 21):
            with pytest.raises(InvariantBroken, match="a view grows"):
                disk.journal.append([ViewStarted(view, "m1")])
        assert disk.restart().state().views == ((21, 1),)

    def test_what_is_prepared_stays_until_it_is_decided(self, disk: Disk) -> None:
        disk.journal.append([prepared("b"), prepared("a", b"x" * 100_000)])
        disk.journal.append([prepared("c")])
        for journal in around_restart(disk):
            assert list(journal.state().prepared.values()) == [prepared("b"), prepared("a", b"x" * 100_000), prepared("c")]
            assert journal.state().decided == {}
        disk.journal.append([committed("b"), Accepted((("b", b"body"),)), rolled_back("a")])
        for journal in around_restart(disk):
            assert journal.state().prepared == {"c": prepared("c")}
            assert journal.state().decided == {"a": rolled_back("a")}
            assert journal.state().parked == ["b"]
            assert journal.body("m1", "b") == b"body"

    def test_a_transaction_may_be_prepared_and_decided_in_one_turn(self, disk: Disk) -> None:
        disk.journal.append([prepared("a"), committed("a"), Accepted((("a", b"body"),)), prepared("b"), rolled_back("b")])
        for journal in around_restart(disk):
            assert journal.state().prepared == {}
            assert journal.state().decided == {"b": rolled_back("b")}

    def test_a_transaction_is_prepared_once(self, disk: Disk) -> None:
        disk.journal.append([prepared("a")])
        with pytest.raises(InvariantBroken, match="prepared once"):
            disk.journal.append([prepared("a", b"other")])
        for journal in around_restart(disk):
            assert journal.state().prepared == {"a": prepared("a")}

    def test_only_the_last_rollbacks_are_remembered_and_all_that_was_decided_by_hand(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(current, "DECIDED_KEPT", 3)
        by_hand = [rolled_back("h1", by_hand=True), committed("h2", by_hand=True)]
        disk.journal.append([prepared("h1"), prepared("h2"), *by_hand])
        for n in range(6):
            disk.journal.append([prepared(f"r{n}"), rolled_back(f"r{n}")])
        expected = ["h1", "h2", "r3", "r4", "r5"]
        for journal in around_restart(disk):
            assert list(journal.state().decided) == expected
        disk.journal.append([prepared("r6"), rolled_back("r6"), TxForgotten("h1"), TxForgotten("never heard of")])
        for journal in around_restart(disk):
            assert list(journal.state().decided.values()) == [by_hand[1], *map(rolled_back, ("r4", "r5", "r6"))]

    def test_a_later_decision_takes_the_place_of_an_earlier_one(self, disk: Disk) -> None:
        # Given a transaction that was committed, and that turned out to be impossible
        disk.journal.append([prepared("a"), committed("a")])
        disk.journal.append([rolled_back("a", by_hand=True)])
        for journal in around_restart(disk):
            assert journal.state().decided == {"a": rolled_back("a", by_hand=True)}
        disk.journal.append([rolled_back("a")])
        for journal in around_restart(disk):
            assert journal.state().decided == {"a": rolled_back("a")}

    def test_the_body_of_a_prepared_transaction_outlives_the_log_around_it(self, disk: Disk) -> None:
        # Given prepared transactions with a long log behind them
        author = Author("m1", "m2")
        disk.journal.append([prepared("long", b"long" * 1_000), prepared("short"), ViewStarted(10, "m1")])
        filled(disk.journal, turns=5, author=author)
        # When all of that is trimmed
        assert disk.journal.trim(below=6) == 5
        # Then they are still there, and nothing else
        for journal in around_restart(disk):
            assert list(journal.state().prepared.values()) == [prepared("long", b"long" * 1_000), prepared("short")]
            assert journal.state().views == ((10, 3),)
            assert [record for _, record in journal.records()] == list(journal.state().prepared.values())
        # And they go once they are decided, with what surrounds the decision
        disk.journal.append([rolled_back("long"), committed("short")])
        filled(disk.journal, turns=1, author=author)
        assert disk.journal.trim(below=7) == 1
        for journal in around_restart(disk):
            assert [record for _, record in journal.records()] == []
            assert journal.state().decided == {"long": rolled_back("long")}
            assert journal.state().prepared == {}

    def test_nothing_of_a_turn_about_transactions_is_there_when_the_disk_is_full(self, disk: Disk) -> None:
        disk.journal.append([prepared("a"), prepared("b"), rolled_back("b")])
        before = disk.journal.state()
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append([rolled_back("a"), prepared("c"), TxForgotten("b"), ViewStarted(10, "m1")])
        assert disk.journal.state() == before
        disk.journal.append([rolled_back("a"), TxForgotten("b")])
        for journal in around_restart(disk):
            assert (journal.state().prepared, journal.state().decided) == ({}, {"a": rolled_back("a")})

    def test_a_promise_is_kept_and_never_taken_back(self, disk: Disk) -> None:
        assert disk.journal.state().promised_view == 0
        disk.journal.promise(21)
        disk.journal.promise(11)
        for journal in around_restart(disk):
            assert journal.state().promised_view == 21
            assert journal.last_number == 0

    def test_a_promise_that_cannot_be_written_is_not_given(self, disk: Disk) -> None:
        disk.journal.promise(11)
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.promise(21)
        for journal in around_restart(disk):
            assert journal.state().promised_view == 11
        disk.journal.promise(21)
        disk.journal.close()
        with pytest.raises(JournalError):
            disk.journal.promise(31)
        assert disk.restart().state().promised_view == 21

    def test_a_rest_is_kept_until_it_is_over(self, disk: Disk) -> None:
        assert disk.journal.state().rest == Rest()
        for rest in (Rest(is_on=True), Rest(is_on=True, primary="m1", view=21), Rest()):
            disk.journal.rest(rest)
            for journal in around_restart(disk):
                assert (journal.state().rest, journal.last_number) == (rest, 0)

    def test_a_rest_that_cannot_be_written_has_not_begun(self, disk: Disk) -> None:
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.rest(Rest(is_on=True))
        for journal in around_restart(disk):
            assert journal.state().rest == Rest()
        disk.journal.close()
        with pytest.raises(JournalError):
            disk.journal.rest(Rest(is_on=True))


class FollowContract:
    """One journal that follows another; subclasses give the fixture ``disk`` with a `twin`."""

    def test_records_are_given_away_as_they_are_stored(self, disk: TwinDisk) -> None:
        filled(disk.journal, turns=3)
        stored = [(number, encode_record(record)) for number, record in disk.journal.records()]
        for journal in around_restart(disk):
            assert journal.numbered_from() == 1
            assert journal.numbered(1, 12, MUCH) == stored
            assert journal.numbered(4, 7, MUCH) == stored[3:7]
            assert journal.numbered(12, 99, MUCH) == stored[11:]
            assert journal.numbered(13, 99, MUCH) == journal.numbered(5, 4, MUCH) == []

    def test_as_many_records_are_given_as_the_bytes_allow_and_at_least_one(self, disk: TwinDisk) -> None:
        disk.journal.append([prepared("a", b"x" * 1_000), prepared("b", b"x" * 1_000), prepared("c", b"x" * 1_000)])
        found = [numbers(disk.journal, 1, 3, limit) for limit in (0, 1_000, 2_000, 2_500, MUCH)]
        assert found == [[1], [1], [1], [1, 2], [1, 2, 3]]

    def test_a_journal_that_follows_is_like_the_one_it_follows(self, disk: TwinDisk) -> None:
        # Given a journal with something of everything
        source, follower = disk.journal, disk.twin()
        author = Author("m1", "m2")
        source.append([ViewStarted(10, "m1"), Started(1), author.hold("m2", "t9"), prepared("p"), prepared("q")])
        filled(source, turns=4, per_turn=3, author=author)
        source.append([author.append("m2", "t9"), rolled_back("p"), author.rebase(4), author.execute(2)])
        source.append([committed("q"), Accepted((("q", b"body"),)), author.hold("m2", "t20"), ClockReserved(9_000)])
        # When another process follows it in batches of any size
        for limit_bytes in (1, 400, 1, MUCH):
            follower.journal.follow(carried(source, follower.journal.last_number + 1, limit_bytes))
            follower.restart()
        # Then all answers are the same, and it can go on by itself
        assert everything(follower.journal, TXIDS, ["m1", "m2"]) == everything(source, TXIDS, ["m1", "m2"])
        turn: list[Record] = [author.stamp("q"), author.add(2), author.execute(9)]
        source.append(turn)
        follower.journal.append(turn)
        assert everything(follower.restart(), TXIDS, ["m1", "m2"]) == everything(source, TXIDS, ["m1", "m2"])

    def test_numbers_may_jump_and_never_go_back(self, disk: TwinDisk) -> None:
        disk.journal.follow([(7, Started(1)), (9, ClockReserved(5))])
        disk.journal.append([Started(2)])
        before = everything(disk.journal, [], [])
        for number in (0, 1, 9, 10):
            with pytest.raises(InvariantBroken, match="numbers of records grow"):
                disk.journal.follow([(number, Started(3))])
        for journal in around_restart(disk):
            assert everything(journal, [], []) == before
            assert [number for number, _ in journal.records()] == [7, 9, 10]
        disk.journal.follow([(11, Started(3))])
        assert disk.restart().last_number == 11

    def test_following_nothing_writes_nothing(self, disk: TwinDisk) -> None:
        disk.journal.follow([])
        assert disk.restart().last_number == 0

    def test_nothing_that_was_followed_is_there_when_the_disk_is_full(self, disk: TwinDisk) -> None:
        source, follower = disk.twin().journal, disk
        filled(source, turns=3)
        follower.journal.follow(carried(source)[:8])
        before = everything(follower.journal, TXIDS, ["m1"])
        with follower.full(), pytest.raises(JournalFull):
            follower.journal.follow(carried(source, 9))
        assert everything(follower.journal, TXIDS, ["m1"]) == before
        follower.journal.follow(carried(source, 9))
        assert everything(follower.restart(), TXIDS, ["m1"]) == everything(source, TXIDS, ["m1"])

    def test_a_closed_journal_does_not_follow(self, disk: TwinDisk) -> None:
        disk.journal.close()
        with pytest.raises(JournalError):
            disk.journal.follow([(1, Started(1))])

    def test_nobody_follows_from_before_what_was_trimmed(self, disk: TwinDisk) -> None:
        source, follower = disk.journal, disk.twin().journal
        author = filled(source, turns=4)
        follower.follow(carried(source))
        filled(source, turns=1, author=author)
        source.trim(below=3)
        assert source.numbered_from() == 9
        assert numbers(source, 8, 99) is None
        assert numbers(disk.restart(), 8, 99) is None
        assert disk.journal.numbered_from() == 9
        follower.follow(carried(disk.journal, follower.last_number + 1))
        assert follower.state() == disk.journal.state()

    def test_results_count_as_trimmed_though_they_come_later_than_their_transactions(self, disk: TwinDisk) -> None:
        author = Author("m1")
        disk.journal.append([*author.synchronised("a"), *author.synchronised("b"), author.execute(1), Started(1)])
        disk.journal.trim(below=2)
        for journal in around_restart(disk):
            assert journal.numbered_from() == 8
            assert numbers(journal, 8, 9) == [8]

    def test_void_results_are_left_out_and_whoever_follows_does_without_them(self, disk: TwinDisk) -> None:
        # Given results that are void after a trusted copy took the place of the content
        source, follower = disk.journal, disk.twin()
        author = Author("m1")
        source.append([*author.whole("a", "b"), Started(1)])
        follower.journal.follow(carried(source)[:2])
        source.append([author.rebase(1), author.execute(1)])
        # When another process follows from before them
        assert [type(record) for _, record in carried(source)].count(Outcomes) == 1
        for number, record in carried(source, 3):
            follower.journal.follow([(number, record)])
        # Then both are the same
        assert everything(follower.restart(), TXIDS, ["m1"]) == everything(source, TXIDS, ["m1"])

    def test_a_record_without_results_is_followed_when_those_before_it_are_void(self, disk: TwinDisk) -> None:
        source, follower = disk.journal, disk.twin()
        author = Author("m1")
        source.append([*author.whole("a"), author.execute(0), author.rebase(0), author.execute(1)])
        follower.journal.follow(carried(source))
        assert everything(follower.restart(), TXIDS, ["m1"]) == everything(source, TXIDS, ["m1"])

    @pytest.mark.parametrize(("lsn", "first"), [(4, 1), (6, 5), (9, 5), (10, 9)])
    def test_void_results_that_say_what_was_rejected_cannot_be_done_without(self, disk: TwinDisk, lsn: int, first: int) -> None:
        # Given results of which the fifth and the tenth are rejections, in the second turn and in the third
        author = filled(disk.journal, turns=3, per_turn=4)
        # When those up to an LSN are void, but stay rejected
        disk.journal.append([author.rebase(lsn), author.execute(2)])
        # Then nobody follows from before the record that said so
        expected = {1: 1, 5: 9, 9: 13}[first]
        for journal in around_restart(disk):
            assert journal.numbered_from() == expected

    def test_the_same_holds_for_rejections_of_the_same_turn(self, disk: TwinDisk) -> None:
        author = Author("m1", "m2")
        turn = author.whole("t1", "t2", "t3", "t4", "t5", "t6")
        disk.journal.append([*turn, author.rebase(5), author.execute(1), author.rebase(2)])
        for journal in around_restart(disk):
            assert journal.numbered_from() == 5

    def test_a_trimmed_journal_keeps_giving_the_records_of_what_is_prepared(self, disk: TwinDisk) -> None:
        source, follower = disk.journal, disk.twin().journal
        author = filled(source, turns=2)
        source.append([prepared("p")])
        follower.follow(carried(source))
        filled(source, turns=3, author=author)
        source.trim(below=3)
        source.append([rolled_back("p")])
        follower.follow(carried(source, follower.last_number + 1))
        assert follower.state() == source.state()
