"""One cluster of real processes over RabbitMQ for all clients of a session, and a repository of its own for each test."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest

from tests.support.broker_source import BrokerSource
from tests.system.processes import ProcessCluster

_DEADLINE_S = 20.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Door:
    """One master, and a repository that nobody else uses."""

    url: str
    repository: str
    others: tuple[str, ...]
    """Addresses of the other masters."""

    @property
    def address(self) -> str:
        """Of the repository."""
        return f"{self.url}/repositories/{self.repository}"

    def everywhere(self, path: str, wanted: Callable[[str], bool], **headers: str) -> None:
        """Wait until the other masters answer so, too."""
        deadline = time.monotonic() + _DEADLINE_S
        for other in self.others:
            address = f"{other}/repositories/{self.repository}{path}"
            while not wanted(found := httpx2.get(address, headers=headers).text):
                assert time.monotonic() < deadline, f"{address} still answers {found!r}"
                time.sleep(0.05)


@pytest.fixture(scope="session")
def clients_site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three masters with two workers each: what was written is not at both of them at once."""
    vhost = f"clients-{secrets.token_hex(3)}"
    url = broker.create_vhost(vhost)
    try:
        with ProcessCluster(tmp_path_factory.mktemp("clients"), url, name="clients") as site:
            yield site
    finally:
        broker.delete_vhost(vhost)


@pytest.fixture
def door(clients_site: ProcessCluster) -> Door:
    """One master after the other, with the name of a repository that does not exist yet."""
    number = next(_numbers)
    urls = [clients_site.url(master) for master in clients_site.masters]
    return Door(urls.pop(number % len(urls)), f"r{number}", tuple(urls))


@pytest.fixture
def made(door: Door) -> Door:
    """The same with the repository, which is empty."""
    httpx2.put(door.address).raise_for_status()
    return door
