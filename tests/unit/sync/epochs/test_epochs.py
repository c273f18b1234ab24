"""Promises, reports, installing: what one master says and does when it is asked, and what its journal brings back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.epochs import FIRST, Configuration, Epoch
from brokerha.model.ids import Instant
from brokerha.model.records import EpochInstalled, EpochPromised
from brokerha.model.wire.codec import decode_envelope, encode_envelope
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochRefused, EpochReport, Tail, TailWanted
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing
from brokerha.sync import bodies as bodies_module
from brokerha.sync import config
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from brokerha.sync.epochs import epochs
from brokerha.sync.membership import PARKED_LIMIT
from tests.support.logs import memory_log
from tests.unit.paper.masters import with_row
from tests.unit.sync.epoch_table import EpochTable

# ---- promises


def test_a_promise_is_durable_with_the_report_that_tells_of_it() -> None:
    # Given a queue of one, and an entry that m2 holds and has not added
    table = EpochTable()
    table.make_queue("a")
    table.write("m2", "b")
    table.round("m2")
    # When m1 asks for a promise
    (out,) = table.prepare("m2", (2, "m1"))
    # Then the journal has it, and the report says all that m2 holds beyond its queue
    assert table.epoch_records("m2") == [EpochPromised((2, "m1"))]
    report = out.message
    assert isinstance(report, EpochReport)
    assert (out.to, report.epoch, report.last_txid) == ("m1", (2, "m1"), "a")
    assert (report.row.epoch, report.row.promised, report.row.lsn) == (FIRST, (2, "m1"), 1)
    assert [(origin, start, [e[1] for e in entries]) for origin, start, entries in report.streams] == [("m2", 0, ["b"])]
    assert report.configuration.masters == ("m1", "m2", "m3")
    assert table.is_frozen("m2")


def test_a_lower_epoch_is_refused_with_what_was_promised() -> None:
    table = EpochTable()
    table.prepare("m2", (3, "m3"))
    assert table.prepare("m2", (2, "m1")) == [Outgoing("m1", EpochRefused((2, "m1"), (3, "m3")))]
    assert table.prepare("m2", (3, "m1")) == [Outgoing("m1", EpochRefused((3, "m1"), (3, "m3")))]
    assert table.epoch_records("m2") == [EpochPromised((3, "m3"))]


def test_the_same_proposer_gets_its_report_again_and_a_higher_one_gets_its_own() -> None:
    table = EpochTable()
    for epoch in ((2, "m1"), (2, "m1"), (2, "m3")):
        (out,) = table.prepare("m2", epoch)
        assert isinstance(out.message, EpochReport)
        assert (out.to, out.message.epoch) == (epoch[1], epoch)
    assert table.epoch_records("m2") == [EpochPromised((2, "m1")), EpochPromised((2, "m3"))]


def test_of_two_that_ask_in_one_turn_the_lower_one_gets_no_report() -> None:
    table = EpochTable()
    table.tell("m2", EpochPrepare((2, "m1")), "m1")
    (out,) = table.prepare("m2", (2, "m3"))
    assert out.to == "m3"


def test_the_epoch_that_one_is_in_is_not_promised_again() -> None:
    table = EpochTable()
    assert table.prepare("m2", FIRST, "m1") == [Outgoing("m1", EpochRefused(FIRST, FIRST))]
    assert not table.is_frozen("m2")


def test_strangers_and_impostors_get_no_promise() -> None:
    table = EpochTable()
    assert table.prepare("m2", (2, "stranger")) == []
    table.tell("m2", with_row(table.posts("m3", "m2")[-1], journal="another", number=99), "m3")
    assert table.prepare("m2", (2, "m3")) == []
    assert table.cores["m2"].peers.ignored["unknown_proposer"] == 2
    assert not table.is_frozen("m2")


def test_one_that_nobody_knows_yet_makes_up_no_majority() -> None:
    # Given a master with an empty journal that has heard nobody yet
    table = EpochTable()
    table.crash("m2")
    table.journals["m2"] = memory_log("m2", "another journal")
    table.start("m2")
    assert table.prepare("m2", (2, "m1")) == []
    assert table.cores["m2"].peers.ignored["not_known_yet"] == 1


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
def test_who_needs_no_majority_is_not_listened_to_where_one_is_needed(mode: str) -> None:
    table = EpochTable(split_recovery=mode)
    assert table.prepare("m2", (2, "m1")) == []  # The proposer says that it needs one.
    assert not table.is_frozen("m2")
    assert table.cores["m2"].peers.ignored["other_mode"] == 1


# ---- frozen


def test_a_frozen_master_stamps_merges_and_adds_nothing() -> None:
    # Given an entry that m2 holds, which could be added as soon as all have it
    table = EpochTable()
    table.write("m2", "held")
    table.round("m2")
    table.prepare("m2", (2, "m1"))
    # When clients and other masters go on
    table.write("m2", "own")
    table.write("m3", "foreign")
    table.live(200)
    # Then m2 keeps what came in and does nothing with it
    core = table.cores["m2"]
    assert table.queue("m2") == []
    assert table.incoming("m2") == ["held"]
    assert list(core.parked) == ["own"]
    assert (core.counts["m2"], core.counts["m3"]) == (1, 0)
    assert core.is_busy()
    # And asks for no bodies either, as nothing would be merged
    assert table.messages(Fetch, "m2") == []


def test_what_was_accepted_while_frozen_is_durable_and_comes_after_the_next_epoch() -> None:
    table = EpochTable()
    table.prepare("m2", (2, "m1"))
    table.write("m2", "own")
    table.round("m2")
    table.restart("m2")
    assert table.is_frozen("m2")
    assert list(table.cores["m2"].parked) == ["own"]
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2"))
    assert table.incoming("m2") == ["own"]


# ---- installing


def test_only_what_was_promised_is_installed() -> None:
    table = EpochTable()
    # Not what it was never asked for
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2"))
    assert table.cores["m2"].epoch == table.first()
    # Not another one than it has promised, lower or higher
    table.prepare("m2", (3, "m1"))
    for number in (2, 4):
        table.install("m2", table.next_epoch(number, "m1", "m1", "m2"))
    # Not one whose member it is not
    table.install("m2", table.next_epoch(3, "m1", "m1", "m3"))
    assert table.cores["m2"].epoch == table.first()
    # But the one that it has promised, once
    decided = table.next_epoch(3, "m1", "m1", "m2")
    for _ in range(2):
        table.install("m2", decided)
    assert table.cores["m2"].epoch == decided
    assert table.epoch_records("m2") == [EpochPromised((3, "m1")), EpochInstalled(decided)]
    assert not table.is_frozen("m2")
    assert set(table.cores["m2"].peers.peers) == {"m1"}
    assert set(table.cores["m2"].peers.outside) == {"m3"}


def test_a_decision_that_came_too_late_is_dropped_by_a_higher_promise() -> None:
    # Given a decision whose base m2 does not own yet
    table = EpochTable()
    table.prepare("m2", (2, "m1"))
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", base_lsn=1, base_txid="a"))
    assert table.cores["m2"].decided is not None
    # When it promises to another one
    table.prepare("m2", (3, "m3"))
    # Then the first one is not installed any more
    assert table.cores["m2"].decided is None


def test_the_queue_is_brought_up_to_the_base_before_the_epoch_begins() -> None:
    # Given a queue of three, of which m3 has nothing, not even the bodies
    table = EpochTable(acknowledge="majority")
    table.write("m1", "a", "b", "c")
    table.live(400, lambda _sender, out: not (out.to == "m3" and isinstance(out.message, Bodies)))
    assert (table.queue("m1"), table.queue("m3")) == (["a", "b", "c"], [])
    # When m3 has promised and is told of an epoch that begins after them
    table.lose()
    table.prepare("m3", (2, "m1"))
    table.tell("m3", EpochInstall(table.next_epoch(2, "m1", "m1", "m2", "m3")), "m1")
    assert table.said("m3") == [Outgoing("m1", TailWanted(1, 3))]
    # Then the entries come from the one that told it, and their bodies with them
    table.tell("m1", TailWanted(1, 3), "m3")
    bodies, tail = [out.message for out in table.said("m1") if isinstance(out.message, Bodies | Tail)]
    assert isinstance(tail, Tail)
    assert bodies == Bodies((("m1", "a", b"a"), ("m1", "b", b"b"), ("m1", "c", b"c")))
    assert [txid for _, txid, _ in tail.entries] == ["a", "b", "c"]
    # As long as these may be under way none is asked for
    table.tell("m3", tail, "m1")
    assert table.said("m3") == []
    table.pass_ms(table.cores["m3"].config.retransmit_ms)
    assert table.said("m3")[0] == Outgoing("m1", Fetch((("m1", "a"), ("m1", "b"), ("m1", "c"))))
    assert table.cores["m3"].epoch.id == FIRST
    table.cores["m3"].on_bodies("m1", Bodies((("m1", "a", b"a"), ("m1", "b", b"b"))))
    table.round("m3")
    assert table.queue("m3") == ["a", "b"]
    assert table.cores["m3"].epoch.id == FIRST
    table.cores["m3"].on_bodies("m1", Bodies((("m1", "c", b"c"),)))
    table.round("m3")
    # And the epoch begins with the last of them
    assert table.queue("m3") == ["a", "b", "c"]
    assert table.cores["m3"].epoch.id == (2, "m1")
    assert table.journals["m3"].body("m1", "c") == b"c"


def test_a_base_that_is_another_transaction_stops_the_master() -> None:
    table = EpochTable()
    table.make_queue("a")
    table.prepare("m2", (2, "m1"))
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", base_txid="other"))
    core = table.cores["m2"]
    assert core.lost == "LSN 1 is another transaction here than at the other masters"
    assert core.epoch.id == FIRST
    assert core.deadline_ms() is None
    table.write("m2", "b")
    assert table.said("m2") == []


def test_streams_go_on_after_what_anybody_holds_and_above_every_timestamp() -> None:
    table = EpochTable()
    table.make_queue("a")
    table.prepare("m2", (2, "m1"))
    starts = {"m1": 1, "m2": 4, "m3": 2}
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", starts=starts, above=10**15))
    table.write("m2", "b")
    table.round("m2")
    core = table.cores["m2"]
    assert core.counts == {"m1": 1, "m2": 5, "m3": 2}
    assert next(iter(core.incoming)) == (10**15 + 1, "b", "m2", 4)


def test_an_entry_that_is_not_above_the_epoch_is_not_taken() -> None:
    table = EpochTable()
    table.prepare("m2", (2, "m1"))
    decided = table.next_epoch(2, "m1", "m1", "m2", above=10**15)
    table.install("m2", decided)
    row = replace(table.cores["m1"].row(99, table.now), epoch=decided.id, have={"m1": 1})
    for stamp, is_taken in ((10**15, False), (10**15 + 1, True)):
        row = replace(row, number=row.number + 1)
        listed = (("m1", 0, ((stamp, "late"),)),)
        table.tell("m2", replace(table.posts("m1", "m2")[-1], row=row, relayed=(), streams=listed), "m1")
        assert bool(table.cores["m2"].streams["m1"].waiting) == is_taken


def test_own_entries_that_are_in_nobodys_report_are_parked_again_before_all_others() -> None:
    # Given two own entries in the stream, and one without a timestamp
    table = EpochTable()
    table.write("m2", "first", "second")
    table.round("m2")
    stamped = [entry[:2] for entry in table.cores["m2"].incoming]
    table.prepare("m2", (2, "m1"))
    table.write("m2", "third")
    table.round("m2")
    # When an epoch begins that recovers neither
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2"))
    # Then all have new timestamps, in their order
    again = [entry[:2] for entry in table.cores["m2"].incoming]
    assert [txid for _, txid in again] == ["first", "second", "third"]
    assert not set(stamped) & set(again)
    assert table.cores["m2"].counts["m2"] == 5
    assert table.cores["m2"].pending == {"first", "second", "third"}


def test_own_entries_of_the_recovered_list_are_not_stamped_again() -> None:
    table = EpochTable()
    table.write("m2", "first", "second")
    table.round("m2")
    listed = next(iter(table.cores["m2"].incoming))
    table.prepare("m2", (2, "m1"))
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", recovered=(listed[:3],)))
    core = table.cores["m2"]
    # What comes after a recovered list is stamped when the list is synchronised
    assert table.incoming("m2") == []
    assert list(core.parked) == ["second"]
    assert core.pending == {"first", "second"}
    assert [e[1] for e in core.recovery.left()] == ["first"]


def test_what_a_list_recovered_and_a_later_one_does_not_name_is_parked_again() -> None:
    table = EpochTable()
    table.write("m2", "first")
    table.round("m2")
    listed = next(iter(table.cores["m2"].incoming))[:3]
    table.prepare("m2", (2, "m1"))
    table.install("m2", table.next_epoch(2, "m1", "m1", "m2", recovered=(listed,)))
    table.prepare("m2", (3, "m1"))
    table.install("m2", table.next_epoch(3, "m1", "m1", "m2"))
    assert table.incoming("m2") == ["first"]


# ---- parts of the queue, for others


def test_a_part_of_the_queue_is_given_to_those_that_ask() -> None:
    table = EpochTable()
    table.make_queue("a", "b", "c")
    table.tell("m1", TailWanted(2, 3), "m3")
    bodies, out = table.said("m1")
    assert isinstance(bodies.message, Bodies)
    assert [txid for _, txid, _ in bodies.message.items] == ["b", "c"]
    assert isinstance(out.message, Tail)
    assert (out.to, out.message.first_lsn, out.message.kept_from) == ("m3", 2, 1)
    assert [txid for _, txid, _ in out.message.entries] == ["b", "c"]


def test_an_answer_has_no_more_bodies_than_fit_and_none_that_its_reader_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies_module, "ANSWER_LIMIT_BYTES", 2)
    table = EpochTable()
    table.make_queue("a", "b", "c")
    table.tell("m1", TailWanted(1, 3), "m3")
    bodies, tail = (out.message for out in table.said("m1"))
    assert isinstance(bodies, Bodies)
    assert isinstance(tail, Tail)
    assert [txid for _, txid, _ in bodies.items] == [txid for _, txid, _ in tail.entries] == ["a", "b"]
    table.tell("m2", TailWanted(1, 3), "m1")
    assert [type(out.message) for out in table.said("m2")] == [Tail]


@pytest.mark.parametrize(("first", "last"), [(4, 9), (3, 2)])
def test_what_is_not_here_or_nothing_is_not_answered(first: int, last: int) -> None:
    table = EpochTable()
    table.make_queue("a", "b", "c")
    table.tell("m1", TailWanted(first, last), "m3")
    assert table.said("m1") == []


def test_strangers_get_no_part_of_the_queue() -> None:
    table = EpochTable()
    table.make_queue("a")
    table.tell("m1", TailWanted(1, 1), "stranger")
    assert table.said("m1") == []
    assert table.cores["m1"].peers.ignored["unknown_peer"] == 1


def test_one_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "TAIL_LIMIT", 2)
    table = EpochTable()
    table.make_queue("a", "b", "c")
    table.tell("m1", TailWanted(1, 3), "m3")
    _, out = table.said("m1")
    assert isinstance(out.message, Tail)
    assert len(out.message.entries) == 2


def test_what_was_trimmed_is_said_to_be_gone() -> None:
    # Given a log that begins at 3
    table = EpochTable()
    for txid in ("a", "b", "c"):
        table.make_queue(txid)
    table.journals["m1"].trim(below=3)
    kept_from = table.journals["m1"].first_lsn()
    assert kept_from == 3
    # When somebody asks for what comes before
    table.tell("m1", TailWanted(1, 3), "m3")
    assert table.said("m1") == [Outgoing("m3", Tail(1, (), kept_from))]


def test_a_tail_that_nobody_was_asked_for_is_not_taken() -> None:
    table = EpochTable()
    table.prepare("m3", (2, "m1"))
    table.install("m3", table.next_epoch(2, "m1", "m1", "m3", base_lsn=1, base_txid="a"))
    table.cores["m3"].on_bodies("m2", Bodies((("m2", "poison", b""),)))
    table.tell("m3", Tail(1, ((5, "poison", "m2"),)), "m2")
    table.round("m3")
    assert table.queue("m3") == []


def test_epochs_of_two_with_one_id_are_equal_and_ids_are_ordered() -> None:
    assert Epoch(2, "m1", ("m1", "m2")).id < Epoch(2, "m2", ("m2", "m3")).id < Epoch(3, "m1", ()).id
    assert EpochTable().first().id == FIRST


def test_what_sides_of_a_split_have_stamped_fits_into_the_message_that_installs_their_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given as many entries as all masters can have stamped, and what one that leaves can add, with ids of the greatest length
    names = tuple(f"m{n}".ljust(32, "x") for n in range(5))
    count = len(names) * SyncConfig(names[0], names).stamp_window(len(names)) + PARKED_LIMIT
    recovered = tuple((2**51 + n, f"{n:0128}", names[0]) for n in range(count))
    epoch = Epoch(9, names[0], names, 2**40, "t" * 128, recovered, configuration=Configuration(names))
    # Then a message can carry them
    assert decode_envelope(encode_envelope("c" * 32, names[0], 1, EpochInstall(epoch))).message == EpochInstall(epoch)
    # And a master that is alone on its side stamps no more than its share
    monkeypatch.setattr(config, "REPORTED_LIMIT", 10)
    log = memory_log(names[0], "journal")
    log.append([EpochInstalled(Epoch(2, names[0], names[:1], configuration=Configuration(names), mode="smart"))])
    core = SyncCore(SyncConfig(names[0], names, split_recovery="smart"), log.state(), log)
    for n in range(9):
        core.accept(f"t{n}", b"")
    log.append(core.collect(Instant(1_000, 1_000_000)).records)
    assert (core.own.count, len(core.parked)) == (2, 7)
