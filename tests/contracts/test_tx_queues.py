"""Both transports keep the contract for the processes of one master."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.bench.yardstick import tx_queue_cost
from tests.contracts.test_transports import in_process_world, rabbitmq_world
from tests.contracts.transport_contract import World
from tests.contracts.tx_queue_contract import EnvelopeContract, ServingContract, TxQueueContract
from tests.support.broker_source import BrokerSource


class TestInProcess(EnvelopeContract, TxQueueContract, ServingContract):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        world = in_process_world()
        yield world
        world.close()


class TestRabbitMQ(EnvelopeContract, TxQueueContract, ServingContract):
    @pytest.fixture
    def world(self, broker: BrokerSource, vhost_url: str) -> Iterator[World]:
        world = rabbitmq_world(broker, vhost_url)
        yield world
        world.close()


def test_what_such_queues_cost_can_be_measured_and_leaves_none(
    broker: BrokerSource, vhost_url: str, covered: Callable[[str], None]
):
    rate = tx_queue_cost(vhost_url, count=12, at_once=2)
    assert rate.per_second > 0
    assert 0 < rate.p50_ms <= rate.p99_ms
    world = rabbitmq_world(broker, vhost_url)
    assert world.tx_queues() == []
    world.close()
    covered(f"a queue for each transaction, by the broker alone: {rate.per_second:.0f}/s, {rate.p50_ms:.1f} ms each")
