"""What a broker can do to queues of transactions, and that neither the queues nor anything beside them stay disturbed.

Given a primary and its backup; when the fault has happened and is over, then new transactions go through, and once all
of them are left no queue of a transaction is left.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxEvents, TxJoin
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.ports.transport import Transport
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.contracts.test_transports import KombuWorld
from tests.contracts.transport_contract import count_of, fetch, take, text_of, wait_until
from tests.contracts.tx_queue_contract import events, join, open_tx
from tests.support.private_broker import PrivateBroker
from tests.support.served import Served

expires_soon = pytest.mark.parametrize("expires_ms", [2000])
expires_in_time = pytest.mark.parametrize("expires_ms", [10_000])
"""Within the patience of these tests: a primary that comes back late opens its queue again after its backup has left it."""


class Processes(NamedTuple):
    """A primary and its backup on a broker that may be hurt."""

    broker: PrivateBroker
    vhost: str
    world: KombuWorld
    primary: Transport
    backup: Transport

    def follow(self, txid: str) -> str:
        """Open a transaction, have it followed, and see its first event through; as the protocol does, again and again."""
        queue = tx_queue_name("m1", txid, "m1b")

        def has_come() -> bool:
            self.primary.tx_queue(OpenTxQueue(queue))
            self.primary.send([join(txid), *events(txid, 0)])
            for envelope in self.backup.receive(100, 300):
                assert isinstance(envelope, Envelope)
                message = envelope.message
                if isinstance(message, TxJoin):
                    self.backup.tx_queue(FollowTxQueue(message.queue))
                if isinstance(message, TxEvents) and message.txid == txid:
                    return True
            return False

        wait_until(has_come, f"an event comes: {self.primary.status()} {self.backup.status()}")
        return queue

    def must_leave_nothing(self, *queues: str) -> None:
        """Once all are left, none is there."""
        for queue in queues:
            self.backup.tx_queue(LeaveTxQueue(queue))
        wait_until(lambda: self.world.tx_queues() == [], f"no queue is left: {self.world.tx_queues()}")


@pytest.fixture
def expires_ms() -> int:
    """Longer than a broker on a busy machine takes from bringing queues back, which begins this time anew, to letting their readers in."""
    return 60_000


@pytest.fixture
def processes(private_broker: PrivateBroker, expires_ms: int) -> Iterator[Processes]:
    vhost = f"tx-{secrets.token_hex(4)}"
    url = private_broker.create_vhost(vhost)

    def list_queues() -> list[str]:
        with private_broker.management() as management:
            return [queue["name"] for queue in management.queues(vhost)]

    world = KombuWorld(url, list_queues)
    primary = world.node("m1", tx_queue_expires_ms=expires_ms, retry_most_ms=200)
    backup = world.node("m1b", role="backup", master="m1", tx_queue_expires_ms=expires_ms, retry_most_ms=200)
    yield Processes(private_broker, vhost, world, primary, backup)
    if not private_broker.is_running:
        private_broker.restart()
    world.close()
    private_broker.delete_vhost(vhost)


def test_transactions_go_on_after_the_broker_was_killed_and_started_again(processes: Processes):
    before = processes.follow("t-1")
    # A broker that is killed forgets a queue that was declared in the last moments before
    processes.broker.ctl("eval", "mnesia:sync_log().")
    processes.broker.kill()
    wait_until(lambda: processes.primary.status().state == "waiting-for-broker", "it is noticed")
    processes.broker.restart()
    # The queue outlives the broker, and its backup follows it again by itself
    wait_until(lambda: processes.primary.status().state == "connected", "the primary is back")
    wait_until(lambda: processes.backup.status().state == "connected", "the backup is back")
    numbers = itertools.count(1)

    def goes_through() -> bool:
        processes.primary.send(events("t-1", next(numbers)))
        return bool(processes.backup.receive(10, 100))

    wait_until(goes_through, "the followed queue is read again")
    after = processes.follow("t-2")
    processes.must_leave_nothing(before, after)


@expires_soon
def test_a_queue_that_was_left_while_there_was_no_broker_is_gone_afterwards(processes: Processes):
    queue = processes.follow("t-1")
    processes.broker.kill()
    wait_until(lambda: processes.backup.status().state == "waiting-for-broker", "it is noticed")
    processes.backup.tx_queue(LeaveTxQueue(queue))
    processes.broker.restart()
    wait_until(lambda: processes.backup.status().state == "connected", "the backup is back")
    processes.must_leave_nothing()


@expires_in_time
def test_transactions_go_on_after_the_broker_closed_every_connection(processes: Processes):
    queue = processes.follow("t-1")
    processes.broker.close_all_connections()
    wait_until(lambda: count_of(processes.backup, "reconnects") >= 2, "the backup is back")
    processes.primary.send(events("t-1", 1))
    other = processes.follow("t-2")
    processes.must_leave_nothing(queue, other)


@expires_in_time
def test_transactions_go_on_after_every_queue_was_deleted(processes: Processes):
    before = processes.follow("t-1")
    processes.broker.delete_queues(processes.vhost)
    after = processes.follow("t-2")
    processes.must_leave_nothing(before, after)


@expires_soon
def test_the_queues_of_a_primary_that_was_killed_go_when_the_backup_leaves_them_or_are_never_read(processes: Processes):
    followed = processes.follow("t-1")
    open_tx(processes.primary, "t-2")
    processes.primary.send(events("t-2", 0))
    wait_until(lambda: len(processes.world.tx_queues()) == 2, "both are there")
    # A killed process says no goodbye: neither does one whose connections the broker closes, if it never comes back
    processes.primary.close(timeout_ms=0)
    processes.backup.tx_queue(LeaveTxQueue(followed))
    processes.must_leave_nothing()


@expires_soon
def test_a_queue_that_a_backup_reads_does_not_expire(processes: Processes):
    queue = processes.follow("t-1")
    short = open_tx(processes.primary, "t-2")
    wait_until(lambda: len(processes.world.tx_queues()) == 2, "both are there")
    wait_until(lambda: processes.world.tx_queues() == [queue], f"{short} expires")
    processes.primary.send(events("t-1", 1))
    expected = events("t-1", 1)[0].message
    # What was sent more than once to open it may come before
    wait_until(lambda: take(processes.backup, 1, limit=1)[0].message == expected, "it is still read")
    processes.must_leave_nothing(queue)


def test_a_queue_that_is_there_in_another_way_is_counted_and_disturbs_no_other(processes: Processes):
    channel = processes.world._app.channel()
    other_way = tx_queue_name("m1", "t-0", "m1b")
    channel.queue_declare(queue=other_way, durable=True, auto_delete=False, arguments={"x-expires": 60_000})
    processes.primary.tx_queue(OpenTxQueue(other_way))
    processes.primary.send([Outgoing("m1b", fetch("beside it"))])
    assert text_of(take(processes.backup, 1)[0]) == "beside it"
    wait_until(lambda: count_of(processes.primary, "tx_queues_refused") == 1, "it is counted")
    queues = [processes.follow(f"t-{number}") for number in range(1, 9)]
    assert count_of(processes.primary, "reconnects") == 0
    channel.queue_delete(other_way)
    processes.must_leave_nothing(*queues)


def test_a_primary_without_the_right_to_make_such_queues_goes_on_without_them(processes: Processes):
    broker = processes.broker
    broker.ctl("add_user", "narrow", "secret-word")
    # AMQP's rights are patterns; this one is everything but queues of transactions
    broker.ctl("set_permissions", "-p", processes.vhost, "narrow", "^brokerha\\.(?!tx\\.).*", ".*", ".*")
    url = processes.world.url.replace("guest:guest@", "narrow:secret-word@")
    narrow = Served(KombuTransport(url, "orders", "m4", 1, "master", TransportConfig(retry_most_ms=200)))
    try:
        wait_until(lambda: narrow.status().state == "connected", "it is connected")
        for number in range(5):
            narrow.tx_queue(OpenTxQueue(tx_queue_name("m4", f"t-{number}", "m4b")))
        narrow.send([Outgoing("m1b", fetch("beside it"))])
        assert text_of(take(processes.backup, 1)[0]) == "beside it"
        wait_until(lambda: count_of(narrow, "tx_queues_refused") > 0, "it is counted")
        assert count_of(narrow, "reconnects") == 0
        assert processes.world.tx_queues() == []
    finally:
        narrow.close()
        broker.ctl("delete_user", "narrow")


def test_a_closed_door_gives_messages_back_also_while_they_pour_in(processes: Processes):
    new = processes.backup
    for number in range(300):
        processes.world.publish("brokerha.writes", "m1", b"%d" % number)
    taken = take(processes.primary, 50, limit=10)
    processes.primary.settle(taken[:20])
    processes.primary.serve_clients(is_open=False)
    new.serve_clients(is_open=True)
    again: list[int] = []
    while len(again) < 280:
        messages = take(new, 1, limit=1)
        new.settle(messages)
        again += [int(message.body) for message in messages]
    assert sorted(again) == list(range(20, 300))
    assert count_of(processes.primary, "reconnects") == count_of(processes.primary, "faults") == 0
