"""Which master a command about a worker goes to, and clients of single masters.

    -c cluster.toml   every master of the file can be asked by its id; a worker's master is the one that the file names, or, for
                      a worker that was added at run time, the one that has it in its list
    --url URL         the master at that address, and no other

A master without an HTTP address is asked through its broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.access import addresses, cluster_file, master_urls
from brokerha.cli.common.options import DEFAULT_CONFIG
from brokerha.model.errors import InvalidRequest, Unreachable

if TYPE_CHECKING:
    from brokerha.client import Client
    from brokerha.nodes.config.cluster import ClusterConfig


class Masters:
    """The masters of one cluster, connected to when they are needed."""

    def __init__(self, config: ClusterConfig | None, urls: dict[str, str], stack: ExitStack, timeout_s: float) -> None:
        self._config = config
        self._urls = urls
        self._stack = stack
        self._clients: dict[str, Client] = {}
        self.timeout_s = timeout_s

    @property
    def ids(self) -> list[str]:
        """Their ids; with ``--url`` the address stands for the one that is there."""
        return list(self._urls)

    def is_worker_of_file(self, worker: str) -> bool:
        """Whether the cluster file says whose worker this is."""
        return self._config is not None and self._config.roles.get(worker) == "worker"

    def client(self, master: str) -> Client:
        """A client of one master, and of no other. Raises typer.BadParameter when the file has none of this id."""
        if master not in self._urls:
            if self._config is None and len(self._urls) == 1:
                return self.client(self.ids[0])
            raise typer.BadParameter(f"{master!r} is no master of this cluster; masters are {', '.join(self._urls)}")
        if master not in self._clients:
            self._clients[master] = self._stack.enter_context(_client_of(master, self._urls[master]))
        return self._clients[master]

    def command(self, master: str, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Have one master carry out a command."""
        return self.client(master).command(name, arguments, timeout=self.timeout_s)

    def master_of(self, worker: str) -> str:
        """The master of a worker, or of a process. Raises InvalidRequest when no master has it, Unreachable when one did not answer."""
        if self._config is None:
            return self.ids[0]
        if worker in self._config.roles:
            return self._config.master_of(worker)
        answers, silent = self.lists()
        known = []
        for master, answer in answers.items():
            known += [row["id"] for row in answer["workers"]]
            if worker in known:
                return master
        if silent:
            unknown = "; ".join(silent.values())
            raise Unreachable(f"{worker} is not in the cluster file, and these masters do not answer: {unknown}")
        raise InvalidRequest(f"no master has a worker {worker}; there are {', '.join(known) or 'none'}")

    def lists(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """What each master says of its workers, and why a master did not answer. Raises Unreachable when none does."""
        answers, silent = {}, {}
        for master in self._urls:
            try:
                answers[master] = self.command(master, "workers")
            except Unreachable as error:
                silent[master] = str(error)
        if not answers:
            raise Unreachable("; ".join(silent.values()))
        return answers, silent


def _client_of(master: str, address: str) -> Client:
    import brokerha

    if not address.startswith("amqp"):
        return brokerha.connect(address)
    from brokerha.client.client import Client
    from brokerha.transports.client.wire import AmqpWire

    logs.to_stderr(logs.COMMAND)
    return Client(AmqpWire(address, to=master))


@contextmanager
def masters(config: Path | None, url: str | None, timeout_s: float) -> Iterator[Masters]:
    """The masters that the options name. Raises typer.BadParameter, ConfigurationError."""
    urls = addresses(config, url)
    file = cluster_file(config) if config is not None or (url is None and DEFAULT_CONFIG.exists()) else None
    if file is not None:
        found = master_urls(file)
        urls = {master.id: found.get(master.id) or file.broker_of(master.id) for master in file.masters}
    with ExitStack() as stack:
        yield Masters(file, urls, stack, timeout_s)
