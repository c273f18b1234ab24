"""State transfer: a master whose missing part of the log is gone everywhere comes back all the same (R16)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.forgetting import forgetting_id
from brokerha.model.records import IdsTaken, StateTaken
from brokerha.model.wire.epoch_messages import State, StateWanted, Tail
from brokerha.model.wire.messages import Bodies, Outgoing, Post
from brokerha.sync import transferring
from brokerha.sync.round import RoundResult
from brokerha.sync.transferring import StateReader, known_among
from tests.support.logs import memory_log
from tests.unit.log.turns import fingerprint_after
from tests.unit.paper.masters import Choice
from tests.unit.sync.epoch_table import LAG_MS, STEP_MS
from tests.unit.sync.state_table import StateTable, about_states

OLD = 3
"""Transactions that all have before one goes away."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> StateTable:
    monkeypatch.setattr(transferring, "PAGE_IDS", 10)
    return table_of()


@pytest.fixture
def majority(monkeypatch: pytest.MonkeyPatch) -> StateTable:
    """The same where an entry is added as soon as a majority holds it."""
    monkeypatch.setattr(transferring, "PAGE_IDS", 10)
    return table_of("majority")


def write_each(table: StateTable, txids: list[str], choice: Choice) -> None:
    """Write transactions at m1, each in a record of its own, while some messages get through only."""
    for txid in txids:
        table.write("m1", txid)
        table.live(3 * STEP_MS, choice)


def table_of(acknowledge: str = "all") -> StateTable:
    """Three masters with three transactions, executed."""
    table = StateTable(acknowledge=acknowledge)
    table.make_queue("a", "b", "c")
    table.execute(*table.names)
    return table


# ---- coming back


def test_a_master_that_lacks_what_nobody_holds_comes_back_by_state(table: StateTable) -> None:
    # Given m3 that was away for so long that nobody holds what it lacks
    txids = table.leave_behind("m3")
    # When it hears the others again
    table.come_back("m3")
    # Then it is a member, and knows what the others know
    assert table.members("m1") == table.members("m3") == ("m1", "m2", "m3")
    position = table.pages("m3")[-1].lsn
    journal = table.journals["m3"]
    assert journal.first_lsn() == position + 1
    assert OLD + len(txids) - 9 < position < OLD + len(txids)
    assert journal.fingerprint_at(position) == fingerprint_after(position)
    assert table.lsns("m3", "a", "c", *txids) == [1, 3, *range(OLD + 1, OLD + len(txids) + 1)]
    assert [journal.rejection(lsn) for lsn in (10, 11)] == ["no place for 10", None]
    assert journal.ordered(position + 1, 99) == table.journals["m1"].ordered(position + 1, 99)
    # And goes on with them
    table.write("m3", "new")
    table.live(400)
    assert table.lsns("m1", "new") == table.lsns("m3", "new") == [OLD + len(txids) + 1]


def test_it_comes_page_by_page_and_each_page_is_written(table: StateTable) -> None:
    table.leave_behind("m3")
    table.come_back("m3")
    # 33 transactions, ten to a page
    assert len({page.cursor for page in table.pages("m3")}) == 4
    kinds = [type(record) for _, record in table.journals["m3"].records() if isinstance(record, StateTaken)]
    assert kinds == [StateTaken]


def test_nothing_is_taken_over_while_anybody_still_holds_what_comes_next(table: StateTable) -> None:
    # Given m1 that holds only the end of the log, and m2 that holds all of it
    table.live_until(lambda: table.members("m1") == ("m1", "m2"), lambda s, o: "m3" not in (s, o.to))
    table.write_on(30, "m1", "m2")
    table.trim("m1")
    # When m3 is back
    table.come_back("m3")
    # Then it has read all of it from m2
    assert not table.messages(StateWanted)
    assert table.queue("m3") == table.queue("m2")
    assert len(table.queue("m3")) == OLD + 30


@pytest.mark.parametrize("are_restarted", [False, True])
def test_a_member_that_lacks_what_nobody_holds_is_left_out_and_comes_back_by_state(
    majority: StateTable, are_restarted: bool
) -> None:
    """Nothing waits for it, as it confirms nothing and a majority is enough: nobody would ever miss it."""

    # Given m3, which promises all the time and never gets a body, so that the others synchronise without it
    def without_bodies(_sender: str, out: Outgoing) -> bool:
        return out.to != "m3" or not isinstance(out.message, Bodies)

    txids = [f"t{n}" for n in range(30)]
    write_each(majority, txids, without_bodies)
    assert [majority.cores[name].lsn for name in majority.names] == [OLD + 30, OLD + 30, OLD]
    # And who keep the end of their log only
    majority.execute("m1", "m2")
    majority.trim("m1", "m2")
    if are_restarted:
        majority.restart("m1")
        majority.restart("m2")
    assert majority.members("m1") == ("m1", "m2", "m3")
    # When it gets everything again
    majority.live_until(lambda: majority.members("m1") == ("m1", "m2"))
    majority.come_back("m3")
    # Then it has all of it
    assert majority.pages("m3")
    assert majority.lsns("m3", *txids) == [*range(OLD + 1, OLD + 31)]


def test_a_member_that_still_gets_on_is_not_left_out(majority: StateTable) -> None:
    # Given m3, to which m1 sends no body, and m1 that holds the end of its log only
    def not_from_m1(sender: str, out: Outgoing) -> bool:
        return (sender, out.to) != ("m1", "m3") or not isinstance(out.message, Bodies)

    def posts_only(_sender: str, out: Outgoing) -> bool:
        return out.to != "m3" or isinstance(out.message, Post)

    write_each(majority, [f"t{n}" for n in range(12)], posts_only)
    majority.execute("m1", "m2")
    majority.trim("m1")
    assert (majority.cores["m1"].lsn, majority.cores["m3"].lsn) == (OLD + 12, OLD)
    # When it reads from m2
    majority.live(4 * LAG_MS, not_from_m1)
    # Then nobody leaves it out
    assert majority.cores["m3"].lsn == OLD + 12
    assert majority.cores["m1"].epoch == majority.first()


def test_without_a_state_to_give_a_master_stays_behind_until_there_is_one(table: StateTable) -> None:
    # Given a log that is trimmed although the sites never executed it
    txids = table.leave_behind("m3")
    for name in ("m1", "m2"):
        table.cores[name].content = lambda: (0, "")
    # When m3 asks for a state
    table.live(2000)
    # Then nobody answers, and both were asked
    assert not table.pages("m3")
    assert {out.to for sender, out in table.sent if isinstance(out.message, StateWanted)} == {"m1", "m2"}
    assert table.cores["m3"].tail.kept_from
    # And as soon as one can, it comes back
    table.restart("m2")
    table.come_back("m3")
    assert table.cores["m3"].lsn == OLD + len(txids)


def test_a_newcomer_takes_over_the_state_where_the_log_does_not_begin_at_its_beginning(table: StateTable) -> None:
    # Given a cluster whose log is trimmed
    table.write_on(30, "m1", "m2", "m3")
    table.trim("m1", "m2", "m3")
    # When a master is added
    table.newcomer("m4")
    table.add("m1", "m4")
    table.live_until(lambda: table.members("m4") == ("m1", "m2", "m3", "m4"))
    table.come_back("m4")
    # Then it knows everything, and holds what the others held
    assert table.lsns("m4", "a", "t33") == [1, 33]
    assert table.journals["m4"].first_lsn() > 1
    assert table.pages("m4")


# ---- crashes, silence, a log that goes on


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "lost"])
@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_a_crash_at_a_page_costs_that_state_and_nothing_else(table: StateTable, page: int, is_written: bool) -> None:
    # Given m3 with an own transaction, that was away
    table.write("m3", "own")
    table.round("m3")
    txids = table.leave_behind("m3")
    # When it crashes with the first, second ... page, before or after that is durable
    table.live_until(lambda: sum(bool(out.to == "m3" and isinstance(out.message, State)) for _, out in table.sent) >= page)
    if is_written:
        table.deliver()
        table.round("m3")
    else:
        table.deliver()
        table.cores["m3"].collect(table.instant("m3"))
    table.restart("m3")
    # Then it begins anew, and comes back with everything
    table.come_back("m3")
    table.live(400)
    assert table.lsns("m3", *txids) == table.lsns("m1", *txids)
    assert table.lsns("m3", "own") == table.lsns("m1", "own") == [OLD + len(txids) + 1]


def test_a_silent_source_is_left_for_another_one(table: StateTable) -> None:
    txids = table.leave_behind("m3")
    table.come_back("m3", lambda sender, out: not (sender == "m1" and isinstance(out.message, State)))
    assert table.lsns("m3", *txids) == table.lsns("m1", *txids)
    asked = [out.to for sender, out in table.sent if sender == "m3" and isinstance(out.message, StateWanted)]
    assert asked.index("m2") == asked.count("m1") > 1


def test_answers_that_take_longer_than_questions_are_awaited(table: StateTable) -> None:
    # Given links on which a page takes ten times as long as the time after which it is asked for again
    txids = table.leave_behind("m3")
    late: list[tuple[int, str, Outgoing]] = []

    def slow(sender: str, out: Outgoing) -> bool:
        if isinstance(out.message, State):
            late.append((table.now.mono_ms + 500, sender, out))
        return not isinstance(out.message, State)

    # When m3 reads a state, then it does
    for _ in range(1_000):
        table.live(STEP_MS, slow)
        for letter in [letter for letter in late if letter[0] <= table.now.mono_ms]:
            late.remove(letter)
            table.tell("m3", letter[2].message, letter[1])
        if table.lsns("m3", *txids) == table.lsns("m1", *txids):
            return
    raise AssertionError("it did not come to pass")


def test_a_source_that_is_gone_in_between_is_left_for_another_one(table: StateTable) -> None:
    txids = table.leave_behind("m3")
    table.live_until(lambda: len(table.pages("m3")) == 2)
    source = next(sender for sender, out in table.sent if isinstance(out.message, State))
    other = "m2" if source == "m1" else "m1"
    table.crash(source)
    table.live_until(lambda: table.lsns("m3", *txids) == table.lsns(other, *txids) and "m3" in table.members("m3"))
    assert {page.cursor for page in table.messages(State, sender=other)} >= {b""}


def test_lost_questions_and_answers_are_asked_again(table: StateTable) -> None:
    txids = table.leave_behind("m3")
    count = 0

    def every_second(_sender: str, out: Outgoing) -> bool:
        nonlocal count
        count += about_states(out)
        return not about_states(out) or bool(count % 2)

    table.come_back("m3", every_second)
    assert table.lsns("m3", *txids) == table.lsns("m1", *txids)


def test_a_log_that_moved_on_is_read_at_another_position(table: StateTable) -> None:
    table.leave_behind("m3")
    table.live_until(lambda: len(table.pages("m3")) == 2)
    first = table.pages("m3")[-1].lsn
    # When the others trim past the position meanwhile
    more = table.write_on(20, "m1", "m2")
    table.trim("m1", "m2")
    table.come_back("m3")
    # Then another state is read, from its first page on
    positions = list(dict.fromkeys(page.lsn for page in table.pages("m3")))
    assert positions[0] == first < positions[1]
    assert next(page.cursor for page in table.pages("m3") if page.lsn == positions[1]) == b""
    assert table.lsns("m3", "t10", *more) == table.lsns("m1", "t10", *more)


def test_writes_go_on_while_a_state_is_read(table: StateTable) -> None:
    table.leave_behind("m3")
    count = 0
    for _ in range(200):
        table.write("m1", f"w{count}")
        count += 1
        table.live(20)
        table.execute("m1", "m2")
        if "m3" in table.members("m3"):
            break
    table.come_back("m3")
    table.live(400)
    written = [f"w{n}" for n in range(count)]
    assert table.lsns("m3", *written) == table.lsns("m1", *written)
    assert None not in table.lsns("m3", *written)


def test_bodies_that_are_trimmed_while_the_tail_is_read_are_not_waited_for(table: StateTable) -> None:
    # Given m3 that took over a state, and knows the order of what comes after it, but none of the bodies
    def no_bodies(_sender: str, out: Outgoing) -> bool:
        return not isinstance(out.message, Bodies)

    table.leave_behind("m3")
    table.live_until(lambda: table.cores["m3"].lsn > OLD, no_bodies)
    at = table.cores["m3"].lsn
    table.live_until(lambda: any(t.first_lsn == at + 1 and t.entries for t in table.messages(Tail, to="m3")), no_bodies)
    table.live(2 * STEP_MS, no_bodies)
    table.lose()
    # When the others trim some of them
    table.trim("m1", "m2", kept=2)
    # Then it takes over another state
    table.come_back("m3")
    assert table.lsns("m3", "t10", "t33") == [10, 33]
    assert len({page.lsn for page in table.pages("m3")}) == 2


# ---- what was accepted here


def test_what_was_synchronised_meanwhile_is_not_synchronised_twice(table: StateTable) -> None:
    # Given a transaction that m3 accepted, and that its client then handed to m1
    table.live_until(lambda: table.members("m1") == ("m1", "m2"), lambda s, o: "m3" not in (s, o.to))
    table.write("m3", "twice", "once")
    table.write("m1", "twice")
    table.leave_behind("m3")
    at = table.lsns("m1", "twice")
    # When m3 comes back
    table.come_back("m3")
    table.live(400)
    # Then it is synchronised once, and what only m3 had, too
    for name in table.names:
        assert table.lsns(name, "twice") == at
        assert "twice" not in table.queue(name)
        assert [entry[1] for entry in table.journals[name].ordered(34, 99)].count("once") == 1
    assert not table.cores["m3"].pending
    assert not table.journals["m3"].state().parked


def test_a_restart_agrees_about_what_waits(table: StateTable) -> None:
    table.live_until(lambda: table.members("m1") == ("m1", "m2"), lambda s, o: "m3" not in (s, o.to))
    table.write("m3", "twice", "once")
    table.write("m1", "twice")
    table.leave_behind("m3")
    table.live_until(lambda: table.journals["m3"].first_lsn() > 4)
    core = table.cores["m3"]
    before = (core.lsn, core.last_entry, {*core.pending}, list(core.parked))
    table.restart("m3")
    again = table.cores["m3"]
    assert (again.lsn, again.last_entry, {*again.pending}, list(again.parked)) == before
    assert "twice" not in again.pending
    assert core.last_entry is not None
    assert again.clock.last >= core.last_entry[0]


def test_an_old_transaction_is_known_with_its_old_lsn_afterwards(table: StateTable) -> None:
    # Given one that was synchronised, and forgotten with its body, while m3 was away
    table.leave_behind("m3")
    table.come_back("m3")
    # Then m3 says of it what m1 says: nobody takes it for a new one
    assert table.lsns("m3", "t10") == table.lsns("m1", "t10") == [10]


# ---- the reader alone


def reader(table: StateTable, source: str = "m1") -> StateReader:
    """One that has asked."""
    reading = StateReader()
    reading._begin(source)
    return reading


PAGE = State(20, b"", (7, "t20", "m1"), b"f", 3, (("t19", 19), ("t20", 20)), (), b"t20")


def test_only_the_page_that_was_asked_for_is_taken(table: StateTable) -> None:
    core = table.cores["m3"]
    for sender, page in (
        ("m2", PAGE),
        ("m1", replace(PAGE, cursor=b"t10")),
        ("m1", replace(PAGE, lsn=core.lsn, ids=())),
        ("m1", replace(PAGE, ids=(("t21", 21),))),
    ):
        assert not reader(table).on_state(sender, page, core.lsn)
    reading = reader(table)
    assert reading.on_state("m1", PAGE, core.lsn)
    # Not twice in a turn, and not the same again
    assert not reading.on_state("m1", PAGE, core.lsn)
    result = RoundResult()
    assert reading.take(core, result)
    assert result.records == [IdsTaken(PAGE.ids, ())]
    assert not reading.on_state("m1", PAGE, core.lsn)
    assert reading.on_state("m1", replace(PAGE, cursor=b"t20"), core.lsn)


def test_a_state_that_the_own_queue_has_passed_meanwhile_is_left_alone(table: StateTable) -> None:
    core = table.cores["m3"]
    reading = reader(table)
    assert reading.on_state("m1", replace(PAGE, next_cursor=b""), core.lsn)
    core.lsn = 20
    result = RoundResult()
    assert not reading.take(core, result)
    assert not result.records


def test_a_page_is_as_small_as_a_message_allows(table: StateTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.leave_behind("m3")
    monkeypatch.setattr(transferring, "PAGE_BYTES", 60)
    table.come_back("m3")
    assert max(len(page.ids) for page in table.pages("m3")) <= 4
    assert table.lsns("m3", "t10") == [10]


def test_a_state_has_what_waits_only_if_its_id_is_not_forgotten_there() -> None:
    # Given a log that knows "old" and "young", and one page of a state that says what is forgotten
    log = memory_log("m1", "journal")
    log.append([IdsTaken((("old", 3), ("young", 9)), ())])
    page = {forgetting_id(5): 12, "older": 2, "new": 11, "later": 21}
    waiting = {"old", "young", "older", "new", "later", "unknown"}
    # Then those that count at the state are no longer pending, at their LSNs
    assert known_among(waiting, page, log, 20) == {"young": 9, "new": 11}
    assert known_among(waiting, {}, log, 20) == {"old": 3, "young": 9}
