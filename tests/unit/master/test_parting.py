"""What a master does around a split in the strategies none, simple and smart: results, waiters and workers follow the queue back."""

from __future__ import annotations

from functools import partial

import pytest

from brokerha.master.admission import Waiters, is_other_origin
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.forgetting import forgetting_id
from brokerha.model.log_lineages import rewinds_of
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.records import Added, BodiesHeld, Outcomes, Rebased, Record, Rewound
from brokerha.model.requests import APPLIED_LEVEL, REJECTED_STATUS, SYNCHRONISED, Submit
from brokerha.model.wire.messages import Executed, Keep
from brokerha.replication.site.config import Standing
from brokerha.sync.round import RoundResult
from tests.support.logs import memory_log
from tests.unit.master.one_master import OneMaster
from tests.unit.replication.benches import results, text


def go_back(bench: OneMaster, lsn: int, lineage: int = 7) -> list[Record]:
    """The queue goes back, as a round of sync would have it; returns the records that the master adds."""
    core = bench.core
    rewound = Rewound(lsn, 1, lineage, keeps_content=core.sync.mode == "none")
    result = RoundResult(records=[rewound], rewound=rewound)
    added = core.parting.on_round(result, bench.now())
    bench.journal.append([*result.records, *added])
    core.sync.lsn = min(lsn, core.sync.lsn)
    core._carried_lsn = core.sync.lsn
    return added


@pytest.mark.parametrize("mode", ["simple", "smart"])
def test_results_after_a_rewind_are_void_and_workers_beyond_it_are_not_in_sync(mode: str) -> None:
    # Given five transactions, executed by both workers
    bench = OneMaster(split_recovery=mode)
    assert bench.standing("w1") is Standing.ON
    bench.core.sites.on_row("m2", 5, from_text(text(4)))
    bench.core.sites.compare(bench.journal, 5)
    assert bench.core.sites.reason()
    bench.core.transacting.coordinator.deciding._lsns = {3: "t3", 5: "t5"}
    bench.core.waiters.add(Submit(1, "t5", b"", APPLIED_LEVEL, 3), 0, 5, None)
    # When the queue goes back to the third
    assert go_back(bench, 3) == []
    assert not bench.core.sites.reason()
    assert bench.core.transacting.coordinator.deciding._lsns == {3: "t3"}
    assert "t5" in bench.core.waiters._by_txid
    assert bench.core.sync.content()[0] == 3
    # Then what was executed behind it counts no more, and whoever executed it has to give it up
    assert bench.core.feed.executed == 3
    assert bench.core.result_of(4) is None
    assert bench.standing("w1") is bench.standing("w2") is Standing.OUT_OF_SYNC
    assert bench.core.site.lineages.rewinds == ((7, 3),)
    # And a restart knows of it
    assert bench.restart().site.lineages.rewinds == ((7, 3),)


def test_where_nothing_is_given_up_a_lineage_begins_all_the_same() -> None:
    bench = OneMaster(split_recovery="smart")
    go_back(bench, 5)
    assert (bench.core.feed.executed, bench.core.site.lineages.number) == (5, 7)
    # Its workers are right as they are: they are told of the lineage
    bench.hear("w1", 5, lineage=7)
    assert bench.standing("w1") is Standing.ON


def test_content_that_stays_is_said_to_be_that_of_the_place_where_the_sides_parted() -> None:
    # Given a site that keeps its content, with two workers that have executed everything
    bench = OneMaster(split_recovery="none")
    assert bench.core.sync.is_ready_to_go_back()
    # When its queue goes back
    (record,) = go_back(bench, 3)
    # Then the log says that what they hold is the content there
    assert isinstance(record, Rebased)
    assert (record.lsn, text_of(record.fingerprint), record.items) == (3, text(5), 5)
    assert text_of(bench.journal.fingerprint_at(3)) == text(5)


def test_the_result_of_the_next_transaction_at_a_void_lsn_is_not_told_to_who_waited_there() -> None:
    waiters = Waiters("m1")
    waiters.add(Submit(1, "t", b"", APPLIED_LEVEL), 0, 5, None)
    waiters.add(Submit(2, "u", b"", APPLIED_LEVEL), 0, 4, None)
    waiters.go_back(4)
    waiters.on_results(4, ((REJECTED, "no", b"", b""),) * 2)
    waiters.on_applied(1, 5)
    waiters.on_added(6, ((9, "t", "m1"),), lambda _origin, _txid: False)
    waiters.on_results(6, ((APPLIED, "", b"", b""),))
    waiters.on_applied(1, 6)
    assert [(reply.status, reply.lsn) for reply in waiters.ready_replies] == [(REJECTED_STATUS, 4), (APPLIED_LEVEL, 6)]


def test_one_who_waited_for_a_transaction_of_another_master_gets_it_at_its_next_place_too() -> None:
    # Given a client that sent its write to m2, got no answer, sent it again to m1, and found it at an LSN that is void since
    journal = memory_log("m1", "j")
    journal.append([BodiesHeld((("m2", "t", b"body"),))])
    waiters = Waiters("m1")
    waiters.add(Submit(1, "t", b"body", SYNCHRONISED), 0, 0, None)
    waiters.add(Submit(2, "t", b"body", APPLIED_LEVEL), 0, 5, None)
    waiters.go_back(4)
    # When m2 brings it again, then it is that transaction, and none that came first
    waiters.on_added(6, ((9, "t", "m2"),), partial(is_other_origin, journal, "m1"))
    assert [(reply.status, reply.lsn) for reply in waiters.replies] == [(SYNCHRONISED, 6)]
    waiters.on_applied(1, 6)
    assert [(reply.status, reply.lsn) for reply in waiters.ready_replies] == [(APPLIED_LEVEL, 6)]


def test_who_takes_the_content_of_another_site_executes_what_he_had_executed_before() -> None:
    # Given a site that kept its content, with two transactions that have no place in the log of now yet
    bench = OneMaster(split_recovery="none")
    go_back(bench, 3)
    bench.run()
    assert bench.core.feed.executed_before == {"t4", "t5"}
    # When its copies are lost, and one of another site is right
    bench.core.site.took_elsewhere = True
    bench.run()
    # Then that copy does not hold them
    assert not bench.core.feed.executed_before
    # And a restart knows of it
    core = bench.restart()
    core.wake(bench.now())
    assert core.feed.executed_before == set()
    # But what the next split gives up it does
    assert not bench.core.site.took_elsewhere


def test_what_had_a_result_again_before_the_next_going_back_is_not_executed_again_after_it() -> None:
    # Given a site that kept its content at a split, and has a result of one transaction of before again when it restarts
    bench = OneMaster(split_recovery="none")
    go_back(bench, 3)
    bench.run()
    assert bench.core.feed.executed_before == {"t4", "t5"}
    bench.journal.append([Added(4, ((10**9, "t4", "m1"),), {}), Outcomes(4, results(4, 4), 4)])
    bench.core = bench.restart()
    bench.run()
    assert bench.core.feed.executed_before == {"t5"}
    # When sides come together before that place
    go_back(bench, 3, lineage=8)
    bench.run()
    # Then the content still holds what it held
    assert bench.core.feed.executed_before == {"t4", "t5"}


def test_what_was_executed_before_a_split_is_executed_when_its_id_was_forgotten_and_comes_again() -> None:
    # Given a site that kept its content, where what was given up has places again, and its ids were forgotten since
    bench = OneMaster(split_recovery="none")
    go_back(bench, 3)
    bench.run()
    again = tuple((10**9 + n, txid, "m1") for n, txid in enumerate(("t4", "t5", "t6", forgetting_id(6))))
    bench.journal.append([Added(4, again, {}), Outcomes(4, results(4, 7), 7)])
    while bench.journal.keep(7):
        pass
    # When another transaction under one of these ids waits for its result
    bench.journal.append([BodiesHeld((("m2", "t4", b"other"),)), Added(8, ((2 * 10**9, "t4", "m2"),), {}, 1)])
    core = bench.restart()
    core.wake(bench.now())
    core.take_ready(bench.now())
    # Then it is executed
    assert core.feed.executed_before == set()


def test_a_site_that_keeps_its_content_executes_all_it_has_first() -> None:
    bench = OneMaster(split_recovery="none")
    # Given a transaction that has its place and no result yet
    bench.core.step(Submit(1, "t6", b"body"), bench.now())
    bench.run()
    assert not bench.core.sync.is_ready_to_go_back()
    # When one worker has executed it
    bench.step("w1", Executed(6, results(6, 6), 6, text(6), 6, "copy-of-w1"))
    bench.hear("w1", 6)
    bench.run()
    assert not bench.core.sync.is_ready_to_go_back()
    # And the other one has it, too
    bench.hear("w2", 6)
    assert bench.core.sync.is_ready_to_go_back()


def test_what_a_worker_may_be_executing_is_not_the_content_that_stays() -> None:
    # Given a transaction that is on its way to the only live worker, when the patience with this site is over
    bench = OneMaster(split_recovery="none")
    bench.core.step(Submit(1, "t6", b"body"), bench.now())
    bench.run()
    bench.ms += 60_000
    bench.hear("w1", 5)
    bench.run()
    # Then nobody says that what it had before is its content: by then it may have executed that one, too
    assert go_back(bench, 3) == []
    assert [split.keeps_content for split in bench.journal.splits()] == [False]


def test_a_site_whose_workers_are_all_gone_keeps_nobody_from_agreeing() -> None:
    bench = OneMaster(split_recovery="none")
    bench.ms += 60_000
    bench.run()
    assert bench.core.sync.is_ready_to_go_back()
    # Nobody can say what the content there is: their copies are healed when they are back, and nothing of it counts as kept
    assert go_back(bench, 3) == []
    assert [split.keeps_content for split in bench.journal.splits()] == [False]


def test_results_that_are_not_written_yet_are_written_before_the_queue_goes_back() -> None:
    bench = OneMaster(split_recovery="smart")
    bench.core.step(Submit(1, "t6", b"body", APPLIED_LEVEL, copies=2), bench.now())
    bench.run()
    bench.step("w1", Executed(6, results(6, 6), 6, text(6), 6, "copy-of-w1"))
    # When sync goes back in the very turn in which the result came
    collect = bench.core.sync.collect
    rewound = Rewound(3, 1, 7)

    def collected(now: object) -> RoundResult:
        result = collect(now)  # type: ignore[arg-type]
        result.records.append(rewound)
        result.rewound = rewound
        bench.core.sync.collect = collect  # type: ignore[method-assign]
        bench.core.sync.lsn = 3
        return result

    bench.core.sync.collect = collected  # type: ignore[method-assign]
    ready = bench.core.take_ready(bench.now())
    # Then the book of the split can say what had become of it
    kinds = [type(record) for record in ready.records]
    assert kinds.index(Outcomes) < kinds.index(Rewound)
    bench.journal.append(ready.records)
    (split,) = bench.journal.splits()
    assert [(each.txid, each.outcome) for each in bench.journal.given_up(split.number, 0, 9)][-1] == ("t6", "applied")
    # And who waits for it still waits, for its next place
    assert bench.core.waiters.replies == bench.core.waiters.ready_replies == []


def test_a_copy_is_kept_as_soon_as_a_master_is_silent_and_dropped_when_all_are_together() -> None:
    bench = OneMaster(split_recovery="smart")
    assert not any(isinstance(message, Keep) for sent in bench.run().values() for message in sent)
    # When somebody is missing
    bench.core.parting._is_somebody_missing = lambda mono_ms: True  # type: ignore[method-assign]
    bench.ms += bench.core.sync.config.heard_ms + 1
    for node in ("w1", "w2"):
        bench.hear(node, 5)
    sent = bench.run()
    # Then one of the workers is to keep its content
    orders = [(node, message) for node, all_ in sent.items() for message in all_ if isinstance(message, Keep)]
    assert [(node, order.is_wanted) for node, order in orders] == [("w2", True)]
    assert not bench.core.sync.is_ready_to_part()
    # And once it has it, this side may go on
    bench.hear("w2", 5, kept_lsn=5, kept_number=orders[0][1].number)
    assert bench.core.sync.is_ready_to_part()
    # When nobody is missing any more, it is dropped
    bench.core.parting._is_somebody_missing = lambda mono_ms: False  # type: ignore[method-assign]
    sent = bench.run()
    assert [m.is_wanted for m in sent.get("w2", []) if isinstance(m, Keep)] == [False]


def test_nobody_keeps_anything_where_only_a_majority_goes_on() -> None:
    bench = OneMaster()
    bench.ms += 60_000
    bench.hear("w1", 5)
    sent = bench.run()
    assert not any(isinstance(message, Keep) for all_ in sent.values() for message in all_)
    assert bench.core.parting.deadline_ms() is None


def test_a_book_of_several_splits_says_up_to_where_each_lineage_agrees() -> None:
    bench = OneMaster(split_recovery="smart")
    go_back(bench, 4, 7)
    go_back(bench, 3, 9)
    assert rewinds_of(bench.journal.splits()) == ((9, 3),)
