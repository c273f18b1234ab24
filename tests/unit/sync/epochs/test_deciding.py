"""What the next epoch is, of reports alone: order, base, starts; and that nothing that was added can change its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import given

from brokerha.model.epochs import FIRST, Configuration, Epoch, EpochId
from brokerha.model.forgetting import forgetting_id
from brokerha.model.ids import NodeId, Ordered, TxId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync.epochs.deciding import base_of, decide, synchronised
from tests.unit.sync.reports import NEXT, report

THIRD: EpochId = (3, "m2")


def nothing(_txid: TxId) -> bool:
    """The synchronised queue is empty."""
    return False


def ids(epoch: Epoch) -> list[TxId]:
    return [txid for _, txid, _ in epoch.recovered]


def test_two_that_hold_nothing_begin_an_empty_epoch() -> None:
    epoch = decide(NEXT, [report("m2"), report("m1")], nothing, 0)
    journals = {"m1": "journal-of-m1", "m2": "journal-of-m2"}
    configuration = Configuration(("m1", "m2", "m3"), journals=journals)
    assert epoch == Epoch(2, "m1", ("m1", "m2"), configuration=configuration)
    assert epoch.id == NEXT


def test_streams_are_sorted_by_timestamp_and_id_whoever_holds_them() -> None:
    # Given two reporters that each know something that the other one does not
    first = report("m1", streams={"m1": (0, (10, "b"), (30, "e")), "m2": (4, (20, "c"))})
    second = report("m2", streams={"m1": (0, (10, "b")), "m2": (4, (20, "c"), (25, "d")), "m3": (0, (10, "a"))})
    # When the epoch is decided
    epoch = decide(NEXT, [first, second], nothing, 0)
    # Then all of it is in the order of (timestamp, id), each once, with its origin
    assert epoch.recovered == ((10, "a", "m3"), (10, "b", "m1"), (20, "c", "m2"), (25, "d", "m2"), (30, "e", "m1"))
    # And streams go on after what anybody holds of them
    assert epoch.starts == {"m1": 2, "m2": 6, "m3": 1}


def test_the_highest_epoch_comes_first_whatever_the_timestamps_say() -> None:
    # Given one reporter that was away, with an entry that is older than all others
    away = report("m3", epoch=FIRST, streams={"m3": (0, (5, "old"))})
    new = report("m1", epoch=NEXT, streams={"m1": (0, (50, "new"))})
    # Then what the later epoch knows stays in front: somebody may have added it
    assert ids(decide(THIRD, [away, new], nothing, 0)) == ["new", "old"]


def test_the_recovered_list_of_the_highest_epoch_keeps_its_order_and_comes_before_its_streams() -> None:
    # Given two members of one epoch that hold different parts of its recovered list, which is not sorted by ids
    listed: list[Ordered] = [(50, "q", "m1"), (50, "p", "m2"), (90, "r", "m3")]
    first = report("m1", epoch=NEXT, recovered={0: listed[0]}, streams={"m1": (1, (95, "s"))})
    second = report("m2", epoch=NEXT, recovered=dict(enumerate(listed)))
    assert ids(decide(THIRD, [first, second], nothing, 0)) == ["q", "p", "r", "s"]
    # And the same when one that has added the first of them names the rest only
    ahead = report("m2", epoch=NEXT, lsn=1, last="q", recovered={1: listed[1], 2: listed[2]})
    assert ids(decide(THIRD, [ahead, first], lambda txid: txid == "q", 50)) == ["p", "r", "s"]


def test_what_only_one_of_an_older_epoch_holds_stands_where_the_list_of_the_highest_epoch_says() -> None:
    # Given m2, which has added "p" in the first epoch with m3, and crashed before that was durable; then m3 and m1 decided the second one
    older = report("m2", epoch=FIRST, streams={"m2": (0, (50, "p"))})
    # And m1, which is in that one, and has not got the body yet
    in_it = report("m1", epoch=NEXT, recovered={1: (60, "q", "m1")})
    in_it = replace(in_it, lacking=((0, 50, "p", "m2"), (2, 70, "gone", "m3")))
    # When m1 and m2 decide the third one, then it keeps the place that was told, and what nobody holds has none
    assert ids(decide(THIRD, [older, in_it], nothing, 0)) == ["p", "q"]


def test_each_id_is_there_once_at_its_first_place() -> None:
    # Given one transaction that came in through two masters, and is known in an older epoch, too
    new = report("m1", epoch=NEXT, streams={"m1": (0, (10, "twice"), (11, "b")), "m2": (0, (20, "twice"))})
    old = report("m3", epoch=FIRST, streams={"m3": (0, (1, "twice"), (2, "c"))})
    assert decide(THIRD, [new, old], nothing, 0).recovered == ((10, "twice", "m1"), (11, "b", "m1"), (11, "c", "m3"))


def test_timestamps_never_go_back_along_the_queue() -> None:
    # Given a queue that ends at 40, and an entry of long ago that nobody else knew
    new = report("m1", epoch=NEXT, lsn=1, last="a", streams={"m1": (1, (50, "b"))})
    old = report("m3", epoch=FIRST, streams={"m3": (0, (5, "c"), (60, "d"))})
    # Then it gets the timestamp of the one before it
    epoch = decide(THIRD, [new, old], {"a"}.__contains__, 40)
    assert epoch.recovered == ((50, "b", "m1"), (50, "c", "m3"), (60, "d", "m3"))
    # And when there is none in the list, that of the base, above which everything to come is
    epoch = decide(
        THIRD, [report("m1", epoch=NEXT, lsn=1, last="a"), report("m3", streams={"m3": (0, (5, "c"))})], {"a"}.__contains__, 40
    )
    assert (epoch.recovered, epoch.above) == (((40, "c", "m3"),), 40)


def test_what_is_in_the_queue_up_to_the_base_is_not_recovered() -> None:
    # Given one that has added a and b, which the other one only holds
    ahead = report("m1", lsn=2, last="b", streams={"m1": (2, (30, "c"))})
    behind = report("m2", streams={"m1": (0, (10, "a"), (20, "b"))})
    epoch = decide(NEXT, [behind, ahead], {"a", "b"}.__contains__, 0)
    assert (epoch.base_lsn, epoch.base_txid, ids(epoch)) == (2, "b", ["c"])
    assert base_of([behind, ahead]) == (2, "b")


def test_every_timestamp_to_come_is_above_all_promises_and_entries() -> None:
    first = report("m1", promise=70, streams={"m1": (0, (60, "a"))})
    assert decide(NEXT, [first, report("m2", promise=50)], nothing, 0).above == 70
    second = report("m2", promise=50, streams={"m3": (0, (90, "b"))})
    assert decide(NEXT, [first, second], nothing, 0).above == 90


def test_streams_of_which_nothing_is_left_go_on_where_they_ended() -> None:
    reports = [report("m1", have={"m1": 7, "m3": 2}), report("m2", have={"m1": 5, "m3": 4})]
    assert decide(NEXT, reports, nothing, 0).starts == {"m1": 7, "m3": 4}


# ---- whatever was added stays where it is


@dataclass(frozen=True)
class Past:
    """Epoch (2, m1), or the first one: its recovered list, its streams, how much each of its members holds and has added."""

    order: tuple[Ordered, ...]
    """In which the epoch adds, each id once."""
    reports: tuple[EpochReport, ...]
    could_be_added: int
    """The longest prefix of `order` each entry of which some reporter holds."""


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Three masters, at least two of which report; entries of three streams, some ids twice; any counts that may be.

    A reporter holds everything that it has added, and of each stream and of the recovered list a part from the head on.
    """
    names = [f"t{n}" for n in range(8)]
    stamped = sorted(draw(st.lists(st.integers(1, 3), max_size=3)))
    listed: list[Ordered] = [(at, txid, "m3") for at, txid in zip(stamped, ("r2", "r0", "r1"), strict=False)]
    stamps = draw(st.lists(st.integers(4, 40), unique=True, max_size=10))
    streams: dict[NodeId, list[tuple[int, TxId]]] = {"m1": [], "m2": [], "m3": []}
    for stamp in sorted(stamps):
        streams[draw(st.sampled_from(sorted(streams)))].append((stamp, draw(st.sampled_from([*names, "r0"]))))
    merged = sorted((stamp, txid, origin) for origin, entries in streams.items() for stamp, txid in entries)
    raw = [*listed, *merged]
    order = list({entry[1]: entry for entry in reversed(raw)}.values())
    order.sort(key=raw.index)
    reports = []
    held: list[set[Ordered]] = []
    for node in draw(st.permutations(["m1", "m2", "m3"]))[: draw(st.integers(2, 3))]:
        done = draw(st.integers(0, len(raw)))
        # Of each stream at least what was added; more as it happens to have come.
        used = {o: sum(entry[2] == o for entry in raw[len(listed) : max(done, len(listed))]) for o in streams}
        have = {o: draw(st.integers(used[o], len(streams[o]))) for o in streams}
        of_list = draw(st.integers(min(done, len(listed)), len(listed)))
        lsn = sum(entry in raw[:done] for entry in order)
        held.append({*listed[:of_list], *((*e, o) for o in streams for e in streams[o][: have[o]])})
        reports.append(
            report(
                node,
                epoch=NEXT,
                lsn=lsn,
                last=order[lsn - 1][1] if lsn else "",
                have=have,
                promise=draw(st.integers(0, 50)),
                recovered={place: listed[place] for place in range(min(done, len(listed)), of_list)},
                streams={o: (used[o], *streams[o][used[o] : have[o]]) for o in streams},
            )
        )
    known = set().union(*held)
    could = next((n for n, entry in enumerate(order) if entry not in known), len(order))
    return Past(tuple(order), tuple(reports), could)


@st.composite
def laggards(draw: st.DrawFn, past: Past) -> list[EpochReport]:
    """One that is still in the first epoch, with entries of its own, some of them known to the others."""
    named = {r.row.node for r in past.reports}
    if len(named) == 3 or draw(st.booleans()):
        return []
    node = ({"m1", "m2", "m3"} - named).pop()
    entries = [(100 * n - 250, draw(st.sampled_from(["old1", "old2", "t0", "r0"]))) for n in range(1, 4)]
    return [report(node, epoch=FIRST, streams={node: (0, *entries[: draw(st.integers(0, 3))])})]


def decide_after(past: Past, reports: Sequence[EpochReport]) -> tuple[Epoch, list[Ordered]]:
    """The epoch, and the queue of somebody that has added all of its recovered list."""
    lsn, _ = base_of(reports)
    synchronised = {txid for _, txid, _ in past.order[:lsn]}
    epoch = decide(THIRD, reports, synchronised.__contains__, past.order[lsn - 1][0] if lsn else 0)
    return epoch, [*past.order[:lsn], *epoch.recovered]


@given(st.data())
def test_whatever_a_member_may_have_added_is_a_prefix_of_base_and_recovered_list(data: st.DataObject) -> None:
    past = data.draw(pasts())
    reports = [*past.reports, *data.draw(laggards(past))]
    epoch, queue = decide_after(past, reports)
    assert tuple(queue[: past.could_be_added]) == past.order[: past.could_be_added]
    assert epoch.base_txid == (past.order[epoch.base_lsn - 1][1] if epoch.base_lsn else "")


@given(st.data())
def test_nothing_is_lost_nothing_is_there_twice_and_the_order_of_reports_is_nothing(data: st.DataObject) -> None:
    past = data.draw(pasts())
    reports = [*past.reports, *data.draw(laggards(past))]
    epoch, queue = decide_after(past, reports)
    names = [txid for _, txid, _ in queue]
    assert len(names) == len(set(names))
    stamps = [stamp for stamp, _, _ in queue]
    assert stamps == sorted(stamps)
    assert max([0, *stamps]) <= epoch.above
    for said in reports:
        entries = [(origin, *entry) for origin, _, entries in said.streams for entry in entries]
        assert {txid for _, _, txid in entries} | {place[2] for place in said.recovered} <= set(names)
        assert all(stamp <= epoch.above for _, stamp, _ in entries)
        assert said.row.promise <= epoch.above
        assert all(epoch.starts[origin] >= count for origin, count in said.row.have.items())
    assert decide_after(past, data.draw(st.permutations(reports)))[0] == epoch


def test_a_recovered_list_that_forgets_ids_recovers_those_that_come_after_it() -> None:
    # Given a queue up to LSN 20 with "old" at 3 and "young" at 9
    def of_the_queue() -> Callable[[str], bool]:
        return synchronised(lambda txid, end: {"old": 3, "young": 9, "after": 21}.get(txid) if end >= 20 else None, 2, 20)

    told = report("m1", streams={"m1": (0, (10, "old"), (11, forgetting_id(5)), (12, "old"), (13, "young"), (14, "new"))})
    # Then only those count as synchronised that are not forgotten at their places
    assert ids(decide(NEXT, [told, report("m2")], of_the_queue(), 5)) == [forgetting_id(5), "old", "new"]
    # And an id below what the queue has forgotten itself is a new one
    assert not synchronised(lambda _txid, _end: 1, 2, 20)("older")
