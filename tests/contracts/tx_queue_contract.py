"""What every transport must do for the processes of one master: queues of transactions, and who serves apps.

A test class derives from `ProcessesContract` and gives a `world` fixture; test_tx_queues.py has one for each adapter.
Here m1 is the primary and m1b, m1c are its backups.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxEvents, TxJoin
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.ports.transport import ClientMessage, Inbound, Transport
from tests.contracts.transport_contract import World, count_of, fetch, take, text_of, wait_until


def events(txid: str, *numbers: int, backup: str = "m1b", body: bytes = b"") -> list[Outgoing]:
    """Events of a transaction on their way through its queue."""
    queue = tx_queue_name("m1", txid, backup)
    return [
        Outgoing(backup, TxEvents(txid, 11, number, (("operation", body),)), queue, sender="m1", incarnation=8)
        for number in numbers
    ]


def join(txid: str, backup: str = "m1b") -> Outgoing:
    """The invitation to a transaction."""
    return Outgoing(backup, TxJoin(txid, 11, tx_queue_name("m1", txid, backup)))


def open_tx(primary: Transport, txid: str, backup: str = "m1b") -> str:
    """Open the queue of a transaction; return its name."""
    queue = tx_queue_name("m1", txid, backup)
    primary.tx_queue(OpenTxQueue(queue))
    return queue


def numbers_of(messages: Iterable[Inbound]) -> list[tuple[str, int]]:
    """(transaction, number) of each event."""
    found = []
    for envelope in messages:
        assert isinstance(envelope, Envelope)
        assert isinstance(envelope.message, TxEvents)
        found.append((envelope.message.txid, envelope.message.first))
    return found


def backup_of(world: World, name: str = "m1b", **limits: Any) -> Transport:
    """A backup of m1."""
    return world.node(name, role="backup", master="m1", **limits)


def bodies_of(messages: Iterable[Inbound]) -> list[bytes]:
    """Bodies of messages of apps."""
    return [message.body for message in messages if isinstance(message, ClientMessage)]


class EnvelopeContract:
    """Who speaks, and through which process."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    def test_a_process_that_speaks_for_its_master_names_both(self, world: World):
        backup, receiver = backup_of(world), world.node("m2")
        backup.send([Outgoing("m2", fetch("t-1"), sender="m1", incarnation=8)])
        assert take(receiver, 1) == [Envelope("orders", "m1", 8, fetch("t-1"), "m1b")]

    def test_the_process_with_the_id_of_its_master_needs_no_second_name(self, world: World):
        primary, receiver = world.node("m1"), world.node("m2")
        primary.send([Outgoing("m2", fetch("t-1"), sender="m1", incarnation=8)])
        assert take(receiver, 1) == [Envelope("orders", "m1", 8, fetch("t-1"))]


class TxQueueContract:
    """Queues that live as long as their reader."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    def test_events_reach_the_backup_that_follows_in_their_order_and_with_their_envelope(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        queue = open_tx(primary, "t-1")
        primary.send(events("t-1", *range(50)))
        wait_until(lambda: queue in world.tx_queues(), "the queue is there")
        backup.tx_queue(FollowTxQueue(queue))
        received = take(backup, 50)
        assert numbers_of(received) == [("t-1", number) for number in range(50)]
        assert (received[0].sender, received[0].incarnation, received[0].process) == ("m1", 8, "")

    def test_each_backup_has_a_queue_of_its_own(self, world: World):
        primary, one, other = world.node("m1"), backup_of(world), backup_of(world, "m1c")
        for name, backup in (("m1b", one), ("m1c", other)):
            queue = open_tx(primary, "t-1", name)
            primary.send(events("t-1", 3 if backup is one else 4, backup=name))
            wait_until(lambda queue=queue: queue in world.tx_queues(), "the queue is there")  # type: ignore[misc]
            backup.tx_queue(FollowTxQueue(queue))
        assert numbers_of(take(one, 1)) == [("t-1", 3)]
        assert numbers_of(take(other, 1)) == [("t-1", 4)]

    def test_whoever_is_invited_finds_the_queue(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        for number in range(40):
            txid = f"t-{number}"
            open_tx(primary, txid)
            primary.send([join(txid), *events(txid, 0)])
        invited = 0
        found: list[tuple[str, int]] = []
        while len(found) < 40:
            for envelope in take(backup, 1, limit=1):
                if isinstance(envelope.message, TxJoin):
                    invited += 1
                    backup.tx_queue(FollowTxQueue(envelope.message.queue))
                else:
                    found += numbers_of([envelope])
        assert sorted(found) == sorted((f"t-{number}", 0) for number in range(40))
        assert (invited, count_of(backup, "tx_queues_gone")) == (40, 0)

    def test_a_queue_goes_with_its_reader_who_goes_on_with_others(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        first, second = open_tx(primary, "t-1"), open_tx(primary, "t-2")
        primary.send([*events("t-1", 0), *events("t-2", 0)])
        wait_until(lambda: len(world.tx_queues()) == 2, "the queues are there")
        backup.tx_queue(FollowTxQueue(first))
        backup.tx_queue(FollowTxQueue(second))
        take(backup, 2)
        backup.tx_queue(LeaveTxQueue(first))
        primary.send(events("t-2", 1))
        assert numbers_of(take(backup, 1)) == [("t-2", 1)]
        wait_until(lambda: world.tx_queues() == [second], "the first is gone")
        # Leaving it again harms nobody
        backup.tx_queue(LeaveTxQueue(first))
        primary.send([*events("t-2", 2), Outgoing("m1b", fetch("other"))])
        received = take(backup, 2)
        assert numbers_of([each for each in received if isinstance(each.message, TxEvents)]) == [("t-2", 2)]

    def test_a_queue_that_is_not_there_is_made_and_disturbs_no_other(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        queue = open_tx(primary, "t-1")
        wait_until(lambda: queue in world.tx_queues(), "the queue is there")
        backup.tx_queue(FollowTxQueue(queue))
        absent = tx_queue_name("m1", "t-2", "m1b")
        backup.tx_queue(FollowTxQueue(absent))
        wait_until(lambda: absent in world.tx_queues(), "the queue is there")
        primary.send([*events("t-1", 0), Outgoing("m1b", fetch("other"))])
        assert len(take(backup, 2)) == 2
        assert count_of(backup, "reconnects") == 0
        open_tx(primary, "t-2")
        primary.send(events("t-2", 0))
        assert numbers_of(take(backup, 1)) == [("t-2", 0)]

    def test_a_transaction_that_is_opened_again_is_followed_again(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        for number in range(5):
            queue = open_tx(primary, "t-1")
            primary.send(events("t-1", number))
            wait_until(lambda queue=queue: queue in world.tx_queues(), "the queue is there")  # type: ignore[misc]
            backup.tx_queue(FollowTxQueue(queue))
            assert numbers_of(take(backup, 1)) == [("t-1", number)]
            backup.tx_queue(LeaveTxQueue(queue))
            wait_until(lambda: world.tx_queues() == [], "gone")
        assert world.tx_queues() == []

    def test_what_is_left_brings_nothing_more_and_can_be_followed_again(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        queue = open_tx(primary, "t-1")
        primary.send(events("t-1", 0))
        wait_until(lambda: queue in world.tx_queues(), "the queue is there")
        backup.tx_queue(FollowTxQueue(queue))
        take(backup, 1)
        backup.tx_queue(LeaveTxQueue(queue))
        # A message of another kind is behind the end of the reading, on whatever way
        assert backup.receive(1, 300) == []
        primary.send(events("t-1", 1))
        wait_until(lambda: count_of(primary, "returned") == 1, "there is no queue for it")
        open_tx(primary, "t-1")
        primary.send(events("t-1", 2))
        backup.tx_queue(FollowTxQueue(queue))
        assert numbers_of(take(backup, 1)) == [("t-1", 2)]

    def test_a_queue_can_be_left_and_followed_again_at_once(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        queue = open_tx(primary, "t-1")
        wait_until(lambda: queue in world.tx_queues(), "the queue is there")
        for number in range(20):
            backup.tx_queue(FollowTxQueue(queue))
            if number % 2:
                # It may have gone with its reader just when it was wanted again; what is lost with that is sent again
                while ("t-1", number) not in numbers_of(backup.receive(10, 100)):
                    primary.send(events("t-1", number))
            backup.tx_queue(LeaveTxQueue(queue))
        assert count_of(backup, "reconnects") == count_of(backup, "tx_queues_gone") == 0

    def test_events_without_a_queue_are_returned_and_counted(self, world: World):
        primary = world.node("m1")
        primary.send(events("t-1", 0, 1))
        wait_until(lambda: count_of(primary, "returned") == 2, "they are returned")
        assert count_of(primary, "returned_replies") == 0

    def test_a_full_queue_refuses_and_the_primary_counts_it(self, world: World, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("brokerha.transports.topology.TX_QUEUE_BYTES", 3000)
        primary = world.node("m1")
        open_tx(primary, "t-1")
        primary.send(events("t-1", *range(20), body=b"x" * 1000))
        wait_until(lambda: count_of(primary, "nacked") > 10, "most are refused")

    def test_no_more_queues_are_followed_than_configured(self, world: World):
        primary, backup = world.node("m1"), backup_of(world, followed_tx_queues=2)
        for number in range(3):
            queue = open_tx(primary, f"t-{number}")
            primary.send(events(f"t-{number}", 0))
            wait_until(lambda queue=queue: queue in world.tx_queues(), "the queue is there")  # type: ignore[misc]
            backup.tx_queue(FollowTxQueue(queue))
        assert sorted(numbers_of(take(backup, 2))) == [("t-0", 0), ("t-1", 0)]
        assert count_of(backup, "tx_queues_too_many") == 1
        assert backup.receive(1, 200) == []

    def test_every_transaction_id_names_a_queue(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        printable = "".join(map(chr, range(ord("!"), ord("~") + 1)))
        for txid in (printable, (printable * 2)[:128]):
            queue = open_tx(primary, txid)
            primary.send([join(txid), *events(txid, 0)])
            assert isinstance(take(backup, 1)[0].message, TxJoin)
            backup.tx_queue(FollowTxQueue(queue))
            assert numbers_of(take(backup, 1)) == [(txid, 0)]

    def test_transactions_that_come_and_go_leave_nothing_behind(self, world: World):
        primary, backup = world.node("m1"), backup_of(world)
        for number in range(30):
            txid = f"t-{number}"
            queue = open_tx(primary, txid)
            primary.send([join(txid), *events(txid, 0, 1)])
            backup.tx_queue(FollowTxQueue(queue))
            take(backup, 3)
            if number % 3 == 0:
                backup.tx_queue(LeaveTxQueue(queue))
        for number in range(30):
            backup.tx_queue(LeaveTxQueue(tx_queue_name("m1", f"t-{number}", "m1b")))
        wait_until(lambda: world.tx_queues() == [], "none is there")
        primary.send([Outgoing("m1b", fetch("still there"))])
        wait_until(
            lambda: any(type(e.message).__name__ == "Fetch" for e in backup.receive(100, 100) if isinstance(e, Envelope)),
            "the backup goes on",
        )

    def test_a_queue_that_nobody_ever_read_expires(self, world: World):
        primary = world.node("m1", tx_queue_expires_ms=2_000)
        queue = open_tx(primary, "t-1")
        primary.send(events("t-1", 0))
        wait_until(lambda: queue in world.tx_queues(), "the queue is there")
        primary.close()
        other = world.node("m2")

        def is_gone() -> bool:
            # In process, queues expire when another one is made.
            probe = tx_queue_name("m2", "probe", "m2b")
            other.tx_queue(OpenTxQueue(probe))
            return queue not in world.tx_queues()

        wait_until(is_gone, "it expires")


class ServingContract:
    """Which process of a master takes what apps send."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError

    def test_a_backup_takes_nothing_of_apps_until_it_is_told_to(self, world: World):
        backup = backup_of(world)
        for exchange, key in (("writes", "m1"), ("writes", "any"), ("reads", "m1"), ("reads", "any")):
            assert world.publish(f"brokerha.{exchange}", key, f"{exchange} {key}".encode())
        assert backup.receive(10, 300) == []
        backup.serve_clients(is_open=True)
        assert sorted(bodies_of(take(backup, 4))) == [b"reads any", b"reads m1", b"writes any", b"writes m1"]

    def test_a_worker_and_a_stranger_find_no_door_to_open(self, world: World):
        worker = world.node("w1", role="worker")
        worker.serve_clients(is_open=True)
        assert not world.publish("brokerha.writes", "w1", b"lost")
        assert worker.receive(10, 100) == []

    def test_what_was_not_settled_goes_back_in_its_order_when_the_door_is_closed(self, world: World):
        old, new = world.node("m1"), backup_of(world)
        for name in (b"first", b"second", b"third", b"fourth"):
            world.publish("brokerha.writes", "m1", name)
        # Given a primary that has settled one of three, and has not looked at the fourth
        taken = take(old, 3, limit=3)
        old.settle([message for message in taken if message.body == b"second"])
        # When it stands back and another one takes over
        old.serve_clients(is_open=False)
        assert old.receive(10, 200) == []
        new.serve_clients(is_open=True)
        again = take(new, 3)
        assert bodies_of(again) == [b"first", b"third", b"fourth"]
        # Then settling what went back means nothing
        old.settle(taken)
        new.settle(again)
        world.publish("brokerha.writes", "m1", b"fifth")
        assert bodies_of(take(new, 1)) == [b"fifth"]

    def test_a_door_can_be_opened_again(self, world: World):
        master = world.node("m1")
        world.publish("brokerha.writes", "m1", b"one")
        take(master, 1)
        master.serve_clients(is_open=False)
        master.serve_clients(is_open=True)
        messages = take(master, 1)
        assert bodies_of(messages) == [b"one"]
        master.settle(messages)
        world.publish("brokerha.writes", "m1", b"two")
        assert bodies_of(take(master, 1)) == [b"two"]

    def test_the_door_for_shared_writes_counts_behind_the_door_for_all(self, world: World):
        backup = backup_of(world)
        backup.serve_shared(is_open=False)
        backup.serve_clients(is_open=True)
        world.publish("brokerha.writes", "any", b"shared")
        world.publish("brokerha.writes", "m1", b"own")
        assert bodies_of(take(backup, 1)) == [b"own"]
        assert backup.receive(10, 200) == []
        backup.serve_shared(is_open=True)
        assert bodies_of(take(backup, 1)) == [b"shared"]
        backup.serve_clients(is_open=False)
        backup.serve_shared(is_open=False)
        backup.serve_shared(is_open=True)
        world.publish("brokerha.writes", "any", b"later")
        assert backup.receive(10, 200) == []

    def test_a_frozen_primary_that_still_reads_keeps_no_new_write_from_the_one_in_its_stead(self, world: World):
        # Given a primary that reads and settles nothing, and does not know that it is none any more
        frozen, new = world.node("m1"), backup_of(world)
        new.serve_clients(is_open=True)
        taken: list[Inbound] = []
        kept: list[Inbound] = []
        numbers = itertools.count(1)

        def new_reads() -> bool:
            # What comes before the broker knows of the new reader goes to the frozen one
            number = next(numbers)
            world.publish("brokerha.reads", "m1", b"who reads?")

            def has_come() -> bool:
                taken.extend(new.receive(100, 50))
                kept.extend(frozen.receive(100, 50))
                return len(taken) + len(kept) == number

            wait_until(has_come, "somebody reads")
            return bool(taken)

        wait_until(new_reads, "the new one reads")
        new.settle([message for message in taken if isinstance(message, ClientMessage)])
        for number in range(40):
            world.publish("brokerha.writes", "m1", b"%d" % number)
        assert bodies_of(take(new, 40)) == [b"%d" % number for number in range(40)]
        assert text_of_all(frozen.receive(100, 100)) == []
        assert set(text_of_all(kept)) <= {"who reads?"}


def text_of_all(messages: Iterable[Inbound]) -> list[str]:
    """What came, in words."""
    return [message.body.decode() if isinstance(message, ClientMessage) else text_of(message) for message in messages]
