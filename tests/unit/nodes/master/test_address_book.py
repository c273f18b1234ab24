"""Who acts for a master: learnt from envelopes, obeyed when sending, and enforced when receiving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.ready import LeaveTxQueue
from brokerha.model.wire.messages import BETWEEN_PROCESSES, Envelope, Fetch, Message, Outgoing, StatusRequest
from brokerha.model.wire.process_messages import Candidate
from brokerha.nodes.master.address_book import UNHEARD_MESSAGES, AddressBook, AddressedTransport
from brokerha.ports.transport import ClientMessage, Transport, TransportStatus

FETCH = Fetch((("m1", "t-1"),))
CANDIDATE = Candidate(12, "journal", (11, 5))
WRITE = ClientMessage(1, b"", "", "", "", "", "brokerha.writes")


class Wire:
    """A transport that keeps what it is asked for, and receives what it is given."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.arrived: list[Envelope | ClientMessage] = []
        self.calls: list[tuple[str, Any]] = []

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        self.sent += outgoing

    def receive(self, limit: int, timeout_ms: int) -> list[Envelope | ClientMessage]:
        del timeout_ms
        taken, self.arrived = self.arrived[:limit], self.arrived[limit:]
        return taken

    def status(self) -> TransportStatus:
        return TransportStatus("connected", "", 0, {"sent": 3})

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, given))


class Node:
    """A transport with an address book of m1 and m2."""

    def __init__(self) -> None:
        self.wire = Wire()
        wire: Any = self.wire
        self.transport = AddressedTransport(wire, AddressBook(["m1", "m2"]))

    def hear(self, sender: str, incarnation: int, process: str = "", message: Message = FETCH) -> bool:
        """Whether an envelope is handed on."""
        self.wire.arrived.append(Envelope("orders", sender, incarnation, message, process))
        return bool(self.transport.receive(10, 0))

    def send(self, to: str, message: Message = FETCH) -> Outgoing:
        """What leaves the node."""
        self.transport.send([Outgoing(to, message)])
        return self.wire.sent.pop()

    def fenced(self) -> int:
        return self.transport.status().counters["fenced"]


def test_an_addressed_transport_is_a_transport():
    transport: Transport = Node().transport
    assert transport.status() == TransportStatus("connected", "", 0, {"sent": 3, "fenced": 0})


def test_before_a_master_was_heard_its_messages_go_to_the_process_with_its_own_id():
    assert Node().send("m1").to == "m1"


def test_messages_for_a_master_go_to_the_process_that_spoke_for_it():
    node = Node()
    assert node.hear("m1", 8, "m1b")
    assert node.send("m1").to == "m1b"
    assert node.send("m2").to == "m2"


def test_after_a_fail_over_the_old_primary_is_not_heard_and_gets_nothing():
    node = Node()
    assert node.hear("m1", 7)
    assert node.hear("m1", 8, "m1b")
    assert not node.hear("m1", 7)
    assert (node.send("m1").to, node.fenced()) == ("m1b", 1)


def test_a_master_whose_own_process_is_primary_again_is_heard_again():
    node = Node()
    node.hear("m1", 8, "m1b")
    assert node.hear("m1", 9)
    assert node.send("m1").to == "m1"


def test_of_two_processes_with_one_incarnation_the_first_counts():
    node = Node()
    assert node.hear("m1", 8, "m1b")
    assert not node.hear("m1", 8, "m1c")
    assert node.hear("m1", 8, "m1b")
    assert (node.send("m1").to, node.fenced()) == ("m1b", 1)


def test_workers_are_left_alone():
    node = Node()
    assert node.hear("w1", 1_700_000_000)
    assert node.hear("w1", 3)
    assert node.send("w1").to == "w1"


@pytest.mark.parametrize("message", [CANDIDATE, StatusRequest("r-1")])
def test_what_a_process_says_as_itself_says_nothing_about_its_master(message: Message):
    node = Node()
    node.hear("m1", 8, "m1b")
    assert node.hear("m1", 1_700_000_000, message=message)
    assert node.hear("m1", 1, message=message)
    assert node.send("m1").to == "m1b"
    assert node.hear("m1", 8, "m1b")


def test_an_incarnation_of_zero_stands_for_the_process_itself():
    node = Node()
    node.hear("m1", 8, "m1b")
    assert node.hear("m1", 0)
    assert node.send("m1").to == "m1b"


def test_messages_between_processes_go_to_the_process_that_they_name_under_its_own_name():
    node = Node()
    node.hear("m1", 8, "m1b")
    node.transport.speak_for("m2", 5)
    assert type(CANDIDATE) in BETWEEN_PROCESSES
    assert node.send("m1", CANDIDATE) == Outgoing("m1", CANDIDATE)


def test_a_primary_speaks_for_its_master_until_it_is_none():
    node = Node()
    node.transport.speak_for("m2", 5)
    assert node.send("m1") == Outgoing("m1", FETCH, sender="m2", incarnation=5)
    node.transport.speak_for("", 0)
    assert node.send("m1") == Outgoing("m1", FETCH)


def test_a_process_that_stands_by_can_be_pointed_to_its_primary():
    node = Node()
    node.transport.point("m1", "m1b")
    assert node.send("m1").to == "m1b"
    # Whoever is heard for the master counts more
    assert node.hear("m1", 3, "m1c")
    assert node.send("m1").to == "m1c"


def test_messages_of_apps_pass_and_everything_else_is_handed_to_the_wire():
    node = Node()
    node.wire.arrived.append(WRITE)
    assert node.transport.receive(10, 0) == [WRITE]
    node.transport.serve_clients(True)
    node.transport.serve_shared(False)
    node.transport.tx_queue(LeaveTxQueue("q"))
    node.transport.settle([WRITE])
    node.transport.reject(WRITE, "why")
    node.transport.reply([])
    node.transport.wake()
    node.transport.close(7)
    assert node.wire.calls == [
        ("serve_clients", (True,)),
        ("serve_shared", (False,)),
        ("tx_queue", (LeaveTxQueue("q"),)),
        ("settle", ([WRITE],)),
        ("reject", (WRITE, "why")),
        ("reply", ([],)),
        ("wake", ()),
        ("close", (7,)),
    ]


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["m1", "m1b", "m1c"])), max_size=30))
def test_whatever_the_order_one_process_is_heard_for_each_incarnation_and_never_a_lower_one(heard: list[tuple[int, str]]):
    book = AddressBook(["m1"])
    accepted = [(incarnation, process) for incarnation, process in heard if book.note("m1", incarnation, process)]
    assert [incarnation for incarnation, _ in accepted] == sorted(incarnation for incarnation, _ in accepted)
    assert len({incarnation for incarnation, _ in accepted}) == len(set(accepted))
    if accepted:
        assert book.process_of("m1") == accepted[-1][1]


def test_nodes_that_are_no_masters_take_no_place_in_the_book():
    book = AddressBook(["m1"])
    for number in range(1000):
        book.note(f"x{number}", 5, "y")
    assert book.process_of("x1") == "x1"


def test_before_a_master_with_backups_was_heard_all_its_processes_are_told():
    wire = Wire()
    transport: Any = wire
    addressed = AddressedTransport(transport, AddressBook(["m1", "m2"], {"m1": ("m1", "m1b")}))
    addressed.send([Outgoing("m1", FETCH)])
    assert [each.to for each in wire.sent] == ["m1", "m1b"]


def test_a_process_that_begins_to_act_finds_out_anew_who_acts_for_the_others():
    # Given a process that once heard m1 in the person of its first process
    wire = Wire()
    transport: Any = wire
    addressed = AddressedTransport(transport, AddressBook(["m1", "m2"], {"m1": ("m1", "m1b")}))
    wire.arrived.append(Envelope("orders", "m1", 3, FETCH))
    addressed.receive(10, 0)

    # When it becomes primary of m2, while m1 has changed its primary too
    addressed.speak_for("m2", 4)
    addressed.send([Outgoing("m1", FETCH)])

    # Then whoever acts for m1 hears of it, and what is older than what was heard stays fenced
    assert [(each.to, each.sender, each.incarnation) for each in wire.sent] == [("m1", "m2", 4), ("m1b", "m2", 4)]
    wire.arrived.append(Envelope("orders", "m1", 2, FETCH, "m1b"))
    assert addressed.receive(10, 0) == []
    wire.arrived.append(Envelope("orders", "m1", 4, FETCH, "m1b"))
    addressed.receive(10, 0)
    addressed.send([Outgoing("m1", FETCH)])
    assert wire.sent[-1].to == "m1b"
    assert len(wire.sent) == 3


def test_who_was_primary_and_stands_by_asks_its_primary_alone():
    book = AddressBook(["m1", "m2"], {"m1": ("m1", "m1b"), "m2": ("m2",)})
    book.note("m1", 20, "m1")
    book.doubt()
    assert book.addresses("m1") == ("m1", "m1b")
    book.point("m1", "m1b")
    assert book.addresses("m1") == ("m1b",)


# ---- masters that were taken out and added again: another journal under the same id


def test_a_master_with_another_journal_is_heard_although_it_begins_with_a_low_incarnation():
    book = AddressBook(["m3"])
    book.trust(["m3"], {"m3": "old"}, [])
    assert book.note("m3", 57, "m3", "old")
    assert not book.note("m3", 1, "m3b", "old")
    book.trust(["m3"], {"m3": "new"}, [("m3", "old")])
    assert book.note("m3", 1, "m3b", "new")
    assert book.process_of("m3") == "m3b"


def test_a_retired_process_is_handed_on_and_never_comes_back_into_the_book():
    # Given m3 with a new journal, and its old process that is started again later
    book = AddressBook(["m3"])
    book.trust(["m3"], {"m3": "new"}, [("m3", "old")])
    assert book.note("m3", 1, "m3b", "new")
    # When the old one shows its journal, and says something else
    assert book.note("m3", 58, "m3", "old")
    assert not book.note("m3", 58, "m3")
    # Then the new one is still who acts, and is heard
    assert book.process_of("m3") == "m3b"
    assert book.note("m3", 1, "m3b")
    assert book.note("m3", 2, "m3", "new")
    assert book.process_of("m3") == "m3"


def test_what_was_noted_before_a_journal_was_shown_gives_way_to_the_one_that_shows_it():
    book = AddressBook(["m3"])
    book.trust(["m3"], {"m3": "new"}, [("m3", "old")])
    assert book.note("m3", 58, "m3")
    assert book.note("m3", 1, "m3b", "new")
    assert book.process_of("m3") == "m3b"


def test_a_node_that_becomes_a_master_takes_a_place_in_the_book():
    book = AddressBook(["m1"])
    book.trust(["m1", "m4"], {}, [])
    assert book.note("m4", 5, "m4b")
    assert book.addresses("m4") == ("m4b",)


def test_a_worker_hears_a_master_that_began_anew_once_the_one_before_is_silent():
    # Given a worker that has heard m1 with a high incarnation
    wire, seconds = Wire(), [100.0]
    transport: Any = wire
    addressed = AddressedTransport(transport, AddressBook(["m1"]), 10.0, lambda: seconds[0])

    def hears(incarnation: int) -> bool:
        wire.arrived.append(Envelope("orders", "m1", incarnation, FETCH))
        return bool(addressed.receive(10, 0))

    assert hears(57)
    seconds[0] += 9
    assert not hears(1)
    assert hears(57)
    seconds[0] += 9
    assert not hears(1)
    seconds[0] += 1
    assert hears(1)
    assert hears(57)
    assert not hears(1)


def test_a_master_that_is_not_heard_for_long_is_looked_for_again_among_its_processes() -> None:
    # Given two masters that changed their primaries at once, and each heard a late message of the other's former one
    names = {"m1": ("m1", "m1b"), "m2": ("m2", "m2b")}
    first, second = AddressBook(names, names), AddressBook(names, names)
    first.note("m2", 39, "m2b")
    second.note("m1", 20, "m1")
    sent = 0
    while "m2" not in first.addresses("m2"):
        assert (sent := sent + 1) <= UNHEARD_MESSAGES
    # Then whoever acts is found by the next message, and one process is enough again
    assert second.note("m1", 21, "m1b")
    assert second.addresses("m1") == ("m1b",)
    assert first.note("m2", 40, "m2")
    assert first.addresses("m2") == ("m2",)
    assert sent == UNHEARD_MESSAGES


def test_a_master_of_one_process_is_looked_for_nowhere_else() -> None:
    book = AddressBook(["m1"], {"m1": ("m1",)})
    book.note("m1", 1, "m1")
    assert {book.addresses("m1") for _ in range(3 * UNHEARD_MESSAGES)} == {("m1",)}
