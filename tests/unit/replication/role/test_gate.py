"""The gate: nothing is shown before enough backups hold it, nothing is lost silently, nothing grows without limit."""

from __future__ import annotations

import random

import pytest

from brokerha.model.ids import Instant
from brokerha.model.requests import Reply, TxReply
from brokerha.model.wire.messages import Apply, Outgoing
from brokerha.replication.role import gate as gate_module
from brokerha.replication.role.gate import Expired, Gate, GateConfig, Released

VIEW = 21
BACKUPS = ("b1", "b2", "b3")


def at(milliseconds: int) -> Instant:
    return Instant(milliseconds, 0)


def a_gate(sync_n: int = 1, **settings: int) -> Gate:
    return Gate(GateConfig(VIEW, sync_n, backups=BACKUPS, **settings))


def letter(number: int) -> Outgoing:
    return Outgoing("w1", Apply(number, ()))


def reply(number: int, status: str = "accepted") -> Reply:
    return Reply(number, f"t{number}", status, lsn=number)


def hold(gate: Gate, *numbers: int, ms: int = 0) -> None:
    for number in numbers:
        gate.hold(number, (letter(number),), (reply(number),), (TxReply(number, f"x{number}"),), at(ms))


def numbers(released: Released) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the messages, replies and tx replies, as `hold` made them."""
    letters = [out.message.first_lsn for out in released.messages if isinstance(out.message, Apply)]
    return letters, [r.ticket for r in released.replies], [r.ticket for r in released.tx_replies]


# ---- holding and letting through


def test_nothing_is_shown_before_a_backup_has_it() -> None:
    gate = a_gate()
    hold(gate, 5)
    assert gate.release() == Released()
    gate.confirm("b1", VIEW, 4)
    assert gate.release() == Released()
    gate.confirm("b1", VIEW, 5)
    assert numbers(gate.release()) == ([5], [5], [5])
    assert gate.release() == Released()


def test_one_confirmation_lets_everything_at_or_below_it_through_in_order() -> None:
    gate = a_gate()
    hold(gate, 1, 2, 3, 4)
    gate.confirm("b2", VIEW, 3)
    assert numbers(gate.release()) == ([1, 2, 3],) * 3
    assert gate.held == (1, 2)


@pytest.mark.parametrize(("sync_n", "passed"), [(1, 9), (2, 7), (3, 4)])
def test_as_many_backups_are_needed_as_sync_n_says(sync_n: int, passed: int) -> None:
    gate = a_gate(sync_n)
    for process, number in zip(BACKUPS, (7, 4, 9), strict=True):
        gate.confirm(process, VIEW, number)
    assert (gate.passed, gate.is_through(passed), gate.is_through(passed + 1)) == (passed, True, False)


def test_with_sync_n_of_zero_everything_passes_at_once() -> None:
    gate = a_gate(0)
    hold(gate, 1, 2)
    assert numbers(gate.release()) == ([1, 2],) * 3
    assert (gate.blocked_ms(at(10**9)), gate.deadline_ms()) == (0, None)


def test_what_is_confirmed_before_it_is_held_passes_behind_what_waited() -> None:
    gate = a_gate()
    hold(gate, 1)
    gate.confirm("b1", VIEW, 2)
    hold(gate, 2)
    assert numbers(gate.release()) == ([1, 2],) * 3


def test_a_turn_without_records_passes_when_the_last_number_is_confirmed() -> None:
    gate = a_gate()
    gate.confirm("b1", VIEW, 7)
    hold(gate, 7)
    assert numbers(gate.release()) == ([7], [7], [7])


@pytest.mark.parametrize("view", [VIEW - 1, VIEW + 10])
def test_a_confirmation_of_another_view_counts_for_nothing(view: int) -> None:
    gate = a_gate()
    hold(gate, 1)
    gate.confirm("b1", view, 1)
    assert gate.release() == Released()


def test_a_late_confirmation_takes_nothing_back() -> None:
    gate = a_gate()
    gate.confirm("b1", VIEW, 9)
    gate.confirm("b1", VIEW, 3)
    assert gate.passed == 9
    gate.forget("b1")
    assert gate.passed == 9


def test_a_forgotten_backup_does_not_count() -> None:
    gate = a_gate(2)
    gate.confirm("b1", VIEW, 9)
    gate.forget("b1")
    gate.confirm("b2", VIEW, 9)
    assert gate.passed == 0
    gate.confirm("b1", VIEW, 5)
    assert gate.passed == 5


def test_one_backup_never_counts_twice() -> None:
    gate = a_gate(2)
    for number in (1, 2, 3):
        gate.confirm("b1", VIEW, number)
    assert gate.passed == 0


@pytest.mark.parametrize("status", ["refused", "unknown"])
def test_what_tells_nothing_is_not_held(status: str) -> None:
    gate = a_gate()
    gate.hold(1, (), (reply(1, status), reply(2, "rejected")), (), at(0))
    assert numbers(gate.release()) == ([], [1], [])
    assert gate.held == (0, 1)


@pytest.mark.parametrize("error", ["InvalidRequest", "ReadOnly", "NotReady", "OutcomeUnknown"])
def test_an_error_that_is_no_outcome_is_not_held(error: str) -> None:
    gate = a_gate()
    gate.hold(1, (), (), (TxReply(1, "x", error),), at(0))
    assert numbers(gate.release()) == ([], [], [1])


@pytest.mark.parametrize("error", ["", "Aborted", "Rejected", "WrongState"])
def test_an_answer_that_tells_what_became_of_a_transaction_is_held(error: str) -> None:
    gate = a_gate()
    gate.hold(1, (), (), (TxReply(1, "x", error),), at(0))
    assert gate.release() == Released()
    gate.confirm("b3", VIEW, 1)
    assert numbers(gate.release()) == ([], [], [1])


# ---- not in time


def test_a_reply_that_waits_too_long_becomes_unknown_and_names_who_is_missing() -> None:
    gate = a_gate(2, timeout_ms=500)
    hold(gate, 8)
    gate.confirm("b2", VIEW, 8)
    assert gate.expire(at(499)) == Expired()
    (late,), (tx_late,) = gate.expire(at(500))
    assert (late.ticket, late.txid, late.status, late.lsn, late.error) == (8, "t8", "unknown", 0, "OutcomeUnknown")
    assert "1 of sync-n 2 backups hold record 8; missing: b1, b3" in late.reason
    assert (tx_late.ticket, tx_late.txid, tx_late.error, tx_late.answer) == (8, "x8", "OutcomeUnknown", {})
    assert "missing: b1, b3" in tx_late.reason
    assert gate.expire(at(10_000)) == Expired()


def test_a_message_whose_reply_expired_still_goes_when_it_is_confirmed() -> None:
    gate = a_gate(timeout_ms=500)
    hold(gate, 1)
    gate.expire(at(600))
    gate.confirm("b1", VIEW, 1)
    assert numbers(gate.release()) == ([1], [], [])


def test_a_reply_that_was_confirmed_in_time_does_not_expire() -> None:
    gate = a_gate(timeout_ms=500)
    hold(gate, 1)
    gate.confirm("b1", VIEW, 1)
    assert gate.expire(at(600)) == Expired()
    assert numbers(gate.release())[1] == [1]


def test_the_time_blocked_is_that_of_the_oldest_turn_that_is_not_through() -> None:
    gate = a_gate(timeout_ms=500)
    assert (gate.blocked_ms(at(0)), gate.is_lost(at(0)), gate.reason(at(0))) == (0, False, "")
    hold(gate, 1, ms=100)
    hold(gate, 2, ms=300)
    assert gate.blocked_ms(at(400)) == 300
    gate.confirm("b1", VIEW, 1)
    assert gate.blocked_ms(at(400)) == 100
    assert (gate.is_lost(at(799)), gate.is_lost(at(800))) == (False, True)
    assert gate.reason(at(800)) == "for 500 ms 0 of sync-n 1 backups hold record 2; missing: b1, b2, b3"
    gate.confirm("b1", VIEW, 2)
    assert (gate.blocked_ms(at(900)), gate.is_lost(at(900))) == (0, False)


def test_a_turn_with_records_only_counts_as_waiting_too() -> None:
    gate = a_gate()
    gate.hold(3, (), (), (), at(50))
    assert gate.blocked_ms(at(60)) == 10


def test_it_asks_to_be_woken_when_a_reply_expires_and_never_for_the_past() -> None:
    gate = a_gate(timeout_ms=500)
    assert gate.deadline_ms() is None
    hold(gate, 1, ms=100)
    hold(gate, 2, ms=200)
    assert gate.deadline_ms() == 600
    gate.expire(at(600))
    assert gate.deadline_ms() == 700
    gate.expire(at(700))
    assert gate.deadline_ms() is None


def test_it_asks_to_be_woken_when_sync_n_counts_as_lost_though_nobody_waits_for_a_reply() -> None:
    gate = a_gate(timeout_ms=500)
    gate.hold(1, (letter(1),), (), (), at(100))
    assert gate.deadline_ms() == 600
    gate.expire(at(600))
    assert gate.deadline_ms() is None


# ---- limits


def test_messages_beyond_the_limit_are_dropped_oldest_first_and_counted() -> None:
    gate = a_gate(messages_limit=2)
    hold(gate, 1, 2, 3)
    gate.confirm("b1", VIEW, 3)
    assert numbers(gate.release()) == ([2, 3], [1, 2, 3], [1, 2, 3])
    assert gate.dropped == 1


def test_replies_beyond_the_limit_become_unknown_oldest_first() -> None:
    gate = a_gate(replies_limit=2)
    hold(gate, 1, 2)
    released = gate.release()
    assert [(r.ticket, r.status) for r in released.replies] == [(1, "unknown")]
    assert [(r.ticket, r.error) for r in released.tx_replies] == [(1, "OutcomeUnknown")]
    assert "more than 2 answers wait" in released.replies[0].reason
    assert gate.held == (2, 2)


def test_what_it_remembers_of_turns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MARKS_LIMIT", 3)
    gate = a_gate()
    for number in range(1, 10):
        gate.hold(number, (), (), (), at(number))
    gate.confirm("b1", VIEW, 3)
    assert gate.blocked_ms(at(20)) == 0
    gate.hold(10, (), (), (), at(20))
    assert gate.blocked_ms(at(25)) == 5


@pytest.mark.parametrize("seed", range(30))
def test_every_reply_comes_exactly_once_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    gate = a_gate(chance.choice((0, 1, 2, 3)), timeout_ms=50, replies_limit=5, messages_limit=3)
    answered: list[int] = []
    shown: list[int] = []
    for number in range(1, 200):
        gate.hold(number, (letter(number),), (reply(number),), (), at(number * 10))
        if chance.random() < 0.5:
            gate.confirm(chance.choice(BACKUPS), VIEW, chance.randint(1, number))
        if chance.random() < 0.1:
            gate.forget(chance.choice(BACKUPS))
        expired = gate.expire(at(number * 10))
        released = gate.release()
        for answer in (*expired.replies, *released.replies):
            answered.append(answer.ticket)
            assert answer.status == "unknown" or gate.is_through(answer.ticket)
        shown += numbers(released)[0]
    answered += [r.ticket for r in gate.expire(at(10**6)).replies] + [r.ticket for r in gate.release().replies]
    assert sorted(answered) == list(range(1, 200))
    assert shown == sorted(set(shown))
    assert len(shown) + gate.dropped + gate.held[0] == 199


def test_who_only_asks_moves_nothing() -> None:
    # Metrics and states are asked for by other threads, between any two steps of the loop: what they moved, it would move too.
    gate = a_gate(timeout_ms=100)
    hold(gate, 5, 6)
    gate.confirm("b1", VIEW, 5)
    before = gate.held
    assert gate.blocked_ms(at(150)) == 150
    assert gate.is_lost(at(150))
    assert gate.reason(at(150)).startswith("for 150 ms 0 of sync-n 1 backups hold record 6")
    assert gate.held == before
    assert numbers(gate.release()) == ([5], [5], [5])
