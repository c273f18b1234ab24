"""Who begins an epoch change and when, what happens to an attempt, and how masters part and come together again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochRefused, EpochReport, Join, TailWanted
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing
from brokerha.sync.waiting import culprits, head_of
from tests.unit.paper.masters import without
from tests.unit.sync.epoch_table import LAG_MS, EpochTable, no_word_of_epochs


def proposers(table: EpochTable) -> set[str]:
    return {message.epoch[1] for message in table.messages(EpochPrepare)}


# ---- who begins, and when


def test_the_first_of_those_that_hear_each_other_leaves_out_who_is_silent() -> None:
    table = EpochTable()
    table.crash("m3")
    table.live(LAG_MS - 200)
    assert proposers(table) == set()
    table.live(LAG_MS)
    assert proposers(table) == {"m1"}
    assert table.members("m1") == table.members("m2") == ("m1", "m2")
    assert table.cores["m1"].epoch == table.cores["m2"].epoch


def test_the_next_one_begins_a_while_later_when_the_first_does_not() -> None:
    # Given a first one that keeps silent about epochs, as one would that noticed nothing
    table = EpochTable()
    table.crash("m3")
    for _ in range(2 * LAG_MS // 20):
        table.settle(1, 20, lambda sender, out: sender != "m1" or no_word_of_epochs(sender, out))
    # Then the second one asks after a while
    assert {m.epoch[1] for m in table.messages(EpochPrepare, sender="m2")} == {"m2"}
    asked = next(at for at, (s, o) in enumerate(table.sent) if s == "m2" and isinstance(o.message, EpochPrepare))
    first = next(at for at, (s, o) in enumerate(table.sent) if s == "m1" and isinstance(o.message, EpochPrepare))
    assert first < asked


def test_a_minority_begins_nothing() -> None:
    table = EpochTable()
    table.live(5 * LAG_MS, without("m1"))
    assert table.messages(EpochPrepare, sender="m1") == []
    assert table.members("m1") == ("m1", "m2", "m3")
    assert table.members("m2") == table.members("m3") == ("m2", "m3")
    # Those that go on say so to the one outside, as long as it is not heard
    assert len(table.messages(Join, sender="m1")) == 0


def test_a_majority_of_members_is_not_enough_it_has_to_be_one_of_all_masters() -> None:
    # Given five masters, of which three are left, and then two
    table = EpochTable(5)
    table.live(2 * LAG_MS, without("m4", "m5"))
    assert table.members("m1") == ("m1", "m2", "m3")
    table.write("m1", "a")
    table.live(5 * LAG_MS, without("m3", "m4", "m5"))
    assert table.members("m1") == ("m1", "m2", "m3")
    assert table.queue("m1") == table.queue("m2") == []
    # And with any third one they go on
    table.live(5 * LAG_MS, without("m3", "m4"))
    assert table.members("m1") == ("m1", "m2", "m5")
    assert table.queue("m1") == table.queue("m2") == table.queue("m5") == ["a"]


def test_one_that_is_heard_but_holds_the_queue_up_is_left_out() -> None:
    # Given a master whose posts come, but to whom no body of a transaction comes
    table = EpochTable()
    table.write("m1", "a")
    table.live(3 * LAG_MS, lambda _sender, out: not (out.to == "m3" and isinstance(out.message, Bodies)))
    # Then the others go on without it
    assert ("m1", "m2") in {message.epoch.members for message in table.messages(EpochInstall)}
    assert table.queue("m1") == table.queue("m2") == ["a"]


def test_nobody_is_left_out_without_whom_there_is_no_majority() -> None:
    # Given three of five, of which one holds the queue up
    table = EpochTable(5)
    table.live(2 * LAG_MS, without("m4", "m5"))
    table.write("m1", "a")
    count = len(table.messages(EpochPrepare))

    def no_body_for_m3(sender: str, out: Outgoing) -> bool:
        away = {"m4", "m5"} & {sender, out.to}
        return not away and not (out.to == "m3" and isinstance(out.message, Bodies))

    # Then they wait for it, and begin nothing that would lead to the same
    table.live(4 * LAG_MS, no_body_for_m3)
    assert table.cores["m1"].epoch.id == (2, "m1")
    assert len(table.messages(EpochPrepare)) == count
    table.live(500, without("m4", "m5"))
    assert table.queue("m1") == table.queue("m3") == ["a"]


# ---- what becomes of an attempt


def test_an_attempt_asks_all_that_are_heard_and_again_until_they_answer() -> None:
    table = EpochTable()
    asked = [Outgoing(node, EpochPrepare((2, "m1"))) for node in ("m2", "m3")]
    assert table.attempt("m1") == asked
    assert table.said("m1") == []
    table.pass_ms(50)
    assert table.said("m1") == asked


def test_it_waits_for_everybody_that_is_heard_but_not_longer_than_the_lag() -> None:
    # Given a report of one, which would be enough, and another one that is heard and says nothing
    table = EpochTable()
    table.attempt("m1")

    def says_nothing(sender: str, out: Outgoing) -> bool:
        return sender != "m3" or no_word_of_epochs(sender, out)

    table.live(LAG_MS - 100, says_nothing)
    assert table.is_frozen("m1")
    assert set(table.cores["m1"].epochs.proposing.attempt.reports) == {"m1", "m2"}  # type: ignore[union-attr]
    table.live(200, says_nothing)
    assert table.messages(EpochInstall, "m1", "m2")[0].epoch.members == ("m1", "m2")


def test_it_decides_at_once_when_all_that_are_heard_have_reported() -> None:
    table = EpochTable()
    table.attempt("m1")
    table.live(60)
    assert {table.cores[name].epoch.id for name in table.names} == {(2, "m1")}
    assert table.members("m1") == ("m1", "m2", "m3")


def test_of_two_that_begin_at_once_the_higher_one_wins_and_both_agree() -> None:
    table = EpochTable()
    table.attempt("m1")
    table.attempt("m2")
    table.live(200)
    assert {table.cores[name].epoch.id for name in table.names} == {(2, "m2")}
    assert table.messages(EpochRefused, "m2", "m1") == [EpochRefused((2, "m1"), (2, "m2"))]
    assert table.cores["m1"].epochs.proposing.attempt is None


def test_one_that_promised_a_higher_epoch_decides_nothing_from_the_reports_to_its_own() -> None:
    table = EpochTable()
    table.attempt("m1")
    table.prepare("m1", (9, "m3"))
    table.live(60)
    assert {report.epoch for report in table.messages(EpochReport, to="m1")} == {(2, "m1")}
    assert table.messages(EpochInstall, "m1") == []


def test_an_epoch_has_a_higher_number_than_any_that_a_reporter_is_in() -> None:
    # Given that m1 and m3 are in the second epoch before m2, which has begun another one with that number, hears of it
    table = EpochTable()
    table.install("m3", decided := table.next_epoch(2, "m1", "m1", "m3"))
    table.cores["m1"].promised = table.cores["m3"].promised = decided.id
    for name in ("m1", "m3"):
        table.install(name, decided)
    assert [table.cores[name].epoch.id for name in ("m1", "m3")] == [(2, "m1")] * 2
    assert [out.message.epoch for out in table.attempt("m2") if isinstance(out.message, EpochPrepare)] == [(2, "m2")] * 2
    # When both report to it
    table.live(200)
    # Then it decides nothing under that number, by which the lineages of queues are told apart
    assert not table.messages(EpochInstall, "m2", "m1")
    # And the next one has a higher one
    table.live(6 * LAG_MS)
    numbers = {table.cores[name].epoch.number for name in table.names}
    assert len(numbers) == 1
    assert numbers.pop() > 2


def test_a_refused_one_waits_and_goes_above_what_it_was_refused_for() -> None:
    # Given m2 and m3 that have promised to somebody who says no more
    table = EpochTable()
    for name in ("m2", "m3"):
        table.prepare(name, (7, "m2"))
    table.lose()
    table.attempt("m1")
    table.live(100)
    assert table.messages(EpochRefused, to="m1")
    assert table.cores["m1"].epochs.proposing.attempt is None
    # When it has been patient, then its next number is above
    table.live(4 * LAG_MS)
    assert {table.cores[name].epoch.id[0] for name in table.names} == {8}


def test_one_that_leads_to_nothing_ends_and_the_next_ones_have_more_patience() -> None:
    # Given masters whose words about epochs all get lost
    table = EpochTable()
    table.attempt("m1")
    began = {(2, "m1"): table.now.mono_ms}
    for _ in range(1000):
        table.live(20, no_word_of_epochs)
        began.setdefault(table.cores["m1"].promised, table.now.mono_ms)
    # Then each attempt of m1 has a higher number, and the waits between them grow
    assert list(began) == [(number, "m1") for number in range(2, 2 + len(began))]
    times = list(began.values())
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert len(waits) >= 4
    assert waits == sorted(waits)
    assert waits[-1] >= 2 * waits[0]
    # And when words get through again, all are in one epoch
    table.live(20 * LAG_MS)
    assert len({table.cores[name].epoch.id for name in table.names}) == 1
    assert not table.is_frozen("m1")


def test_a_proposer_that_restarts_in_the_middle_begins_with_another_number() -> None:
    # Given an attempt of which nothing but the promise is left
    table = EpochTable()
    table.attempt("m1")
    table.restart("m1")
    assert table.is_frozen("m1")
    table.live(4 * LAG_MS)
    assert {table.cores[name].epoch.id[0] for name in table.names} == {3}


def test_a_decision_of_which_nobody_heard_is_found_with_the_one_that_made_it() -> None:
    # Given m1, which has decided and installed, and m2, which has promised and heard nothing more
    table = EpochTable()
    table.crash("m3")
    table.attempt("m1")
    table.live(300, lambda _sender, out: not isinstance(out.message, EpochInstall))
    assert table.members("m1") == ("m1", "m2")
    assert table.is_frozen("m2")
    # When it is heard again, then m2 gets the decision again
    table.live(300)
    assert table.cores["m2"].epoch == table.cores["m1"].epoch


def test_a_proposer_that_is_behind_reads_up_to_the_base_before_it_decides() -> None:
    # Given m1, which has not added what m2 has
    table = EpochTable(5, acknowledge="majority")
    table.write("m2", "a")
    table.live(200, lambda sender, out: out.to != "m1")
    assert (table.queue("m2"), table.queue("m1")) == (["a"], [])
    # When it leads
    table.attempt("m1")
    table.deliver()
    table.live(200)
    # Then it has asked somebody for the entry first, whose body comes beside it
    assert table.messages(TailWanted, "m1")[0] == TailWanted(1, 1)
    assert table.messages(Fetch, "m1") == []
    epoch = table.cores["m1"].epoch
    assert (epoch.id, epoch.base_lsn, epoch.base_txid, epoch.recovered) == ((2, "m1"), 1, "a", ())
    assert table.queue("m1") == ["a"]


@pytest.mark.parametrize("change", ["node", "journal", "sender"])
def test_reports_of_others_than_known_masters_do_not_count(change: str) -> None:
    table = EpochTable()
    table.attempt("m1")
    (out,) = table.prepare("m2", (2, "m1"))
    report = out.message
    assert isinstance(report, EpochReport)
    said = {"node": {"node": "m3"}, "journal": {"journal": "another"}, "sender": {}}[change]
    report = replace(report, row=replace(report.row, **said))  # type: ignore[arg-type]
    table.tell("m1", report, "stranger" if change == "sender" else "m2")
    assert table.cores["m1"].peers.ignored["unknown_reporter"] == 1
    assert set(table.cores["m1"].epochs.proposing.attempt.reports) == {"m1"}  # type: ignore[union-attr]


def test_reports_and_refusals_of_another_attempt_change_nothing() -> None:
    table = EpochTable()
    (out,) = table.prepare("m2", (2, "m1"))
    table.tell("m1", out.message, "m2")
    table.tell("m1", EpochRefused((2, "m1"), (5, "m3")), "stranger")
    assert table.attempt("m1")[0].message == EpochPrepare((2, "m1"))
    table.tell("m1", out.message, "m2")
    assert isinstance(out.message, EpochReport)
    late = replace(out.message, epoch=(1, "m1"), row=replace(out.message.row, node="m3", journal="journal-of-m3"))
    table.tell("m1", late, "m3")
    table.tell("m1", EpochRefused((1, "m1"), (5, "m3")), "m3")
    current = table.cores["m1"].epochs.proposing.attempt
    assert current is not None
    assert set(current.reports) == {"m1", "m2"}
    # But the next number is above all that was heard of
    table.restart("m2")
    assert table.cores["m1"].epochs.proposing.begin_attempt(table.cores["m1"], table.now.mono_ms) == (6, "m1")


# ---- what is waited for


def test_who_holds_up_a_recovered_list_is_named() -> None:
    table = EpochTable()
    table.write("m2", "a")
    table.round("m2")
    listed = tuple(entry[:3] for entry in table.cores["m2"].incoming)
    table.prepare("m2", (2, "m1"))
    assert head_of(table.cores["m2"]) is None
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", "m3", recovered=listed))
    core = table.cores["m2"]
    assert head_of(core) == (0, 1, "")
    assert culprits(core, table.now.mono_ms) == ["m1", "m3"]
    # When one of them says that it holds the list
    decided = core.epoch
    row = replace(table.cores["m1"].row(99, table.now), epoch=decided.id, recovered=1, have=dict(decided.starts))
    table.tell("m2", replace(table.posts("m1", "m2")[-1], row=row, relayed=(), streams=()), "m1")
    assert culprits(core, table.now.mono_ms) == ["m3"]
