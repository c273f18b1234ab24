"""Both transports keep the contract for the processes of one master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
