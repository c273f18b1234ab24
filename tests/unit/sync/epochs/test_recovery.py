"""The recovered list at one member: held from the head on, added as far as all hold it, found again by the LSN alone."""

from __future__ import annotations

from brokerha.model.epochs import Epoch
from brokerha.model.ids import NodeId, Ordered, TxId
from brokerha.model.wire.messages import Fetch, Outgoing
from brokerha.sync.epochs.recovery import Recovery

LIST: tuple[Ordered, ...] = ((30, "a", "m1"), (10, "b", "m3"), (20, "c", "m3"))
EPOCH = Epoch(2, "m1", ("m1", "m2"), base_lsn=5, base_txid="e", recovered=LIST)


class Bodies:
    """Which bodies are here."""

    def __init__(self, *txids: TxId) -> None:
        self.here = set(txids)

    def has(self, _origin: NodeId, txid: TxId) -> bool:
        return txid in self.here


def test_what_is_here_from_the_head_on_is_held_at_once() -> None:
    bodies = Bodies("a", "c")
    recovery = Recovery(EPOCH, 5, bodies.has)
    assert (recovery.done, recovery.held, recovery.is_over) == (0, 1, False)
    assert recovery.left() == LIST
    # But what is behind a gap is reported, too: somebody has to keep it
    assert recovery.reported(bodies.has) == ((0, 30, "a", "m1"), (2, 20, "c", "m3"))
    assert recovery.reported(Bodies().has) == ((0, 30, "a", "m1"),)


def test_a_body_that_has_to_be_fetched_is_asked_for_and_then_counts() -> None:
    bodies = Bodies("a", "c")
    recovery = Recovery(EPOCH, 5, bodies.has)
    assert recovery.missing.fetch(bodies.has, ["m2"], 1000, 250) == [Outgoing("m2", Fetch((("m3", "b"),)))]
    assert recovery.missing.due_ms(250) == 1250
    assert recovery.hold(bodies.has) == 0
    bodies.here.add("b")
    assert recovery.hold(bodies.has) == 2
    assert recovery.held == 3
    assert recovery.missing.due_ms(250) is None


def test_it_is_added_as_far_as_it_is_held_everywhere_and_each_entry_once() -> None:
    bodies = Bodies("a", "b", "c")
    recovery = Recovery(EPOCH, 5, bodies.has)
    assert recovery.next(0) == []
    assert recovery.next(2) == list(LIST[:2])
    # One that says less than it said before takes nothing back
    assert recovery.next(1) == []
    assert recovery.reported(bodies.has) == ((2, 20, "c", "m3"),)
    # One that says more than is held here is not followed further than that
    assert recovery.next(9) == [LIST[2]]
    assert recovery.is_over
    assert list(recovery.left()) == []


def test_what_is_not_held_here_is_not_added() -> None:
    recovery = Recovery(EPOCH, 5, Bodies("a").has)
    assert recovery.next(3) == [LIST[0]]
    assert not recovery.is_over


def test_a_restart_finds_its_place_by_the_lsn() -> None:
    # Given a queue that ends behind the second entry, and one that has gone on after all of them
    middle = Recovery(EPOCH, 7, Bodies("a", "b").has)
    assert (middle.done, middle.held, list(middle.left())) == (2, 2, [LIST[2]])
    behind = Recovery(EPOCH, 30, Bodies().has)
    assert (behind.done, behind.held, behind.is_over) == (3, 3, True)


def test_an_epoch_without_a_recovered_list_is_over_it_at_once() -> None:
    recovery = Recovery(Epoch(1, "", ("m1", "m2")), 0, Bodies().has)
    assert recovery.is_over
    assert recovery.reported(Bodies().has) == ()
    assert recovery.missing.fetch(Bodies().has, ["m2"], 1000, 250) == []
