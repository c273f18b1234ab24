"""The cluster of a command: as a whole, or one of its masters.

    --url, or -c, or BROKERHA_URL, or ./cluster.toml: the first one given counts; --url and -c together are a mistake.

    -c cluster.toml   every master of the file can be asked by its id; a worker's master is the one in the file or, for
                      a worker that was added at run time, the master that lists it
    --url URL         only the master at that address

A master without an HTTP address is asked through its broker; so is a cluster whose masters have no HTTP addresses.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.command import (
    DEFAULT_CONFIG,
    DEFAULT_TIMEOUT_S,
    ConfigOption,
    Options,
    TimeoutOption,
    UrlOption,
)
from brokerha.model.errors import ConfigurationError, InvalidRequest, TimedOut, Unreachable

if TYPE_CHECKING:
    from tenacity import Retrying

    from brokerha.client import Client
    from brokerha.nodes.config.cluster import ClusterConfig

URL_VARIABLE = "BROKERHA_URL"
SURVEY_S = 5.0
"""Time in which one of several masters must answer; the others are asked after it."""
Row = dict[str, Any]


def cluster_file(config: Path | None) -> ClusterConfig:
    """Load the cluster file of ``-c``, or that of the current folder. Raises ConfigurationError, typer.BadParameter."""
    from brokerha.nodes.config.cluster import load_config

    if config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(f"which cluster? write -c FILE; there is no {DEFAULT_CONFIG} in this folder")
    return load_config(config or DEFAULT_CONFIG, os.environ)


def master_urls(cluster: ClusterConfig) -> dict[str, str]:
    """Return the addresses of each master that has any, followed by those of its backups: one of them can be primary."""
    known = cluster.http_urls()
    urls: dict[str, str] = {}
    for master in cluster.masters_to_ask:
        own = [known[process] for process in cluster.processes_of(master.id) if process in known]
        if own:
            urls[master.id] = ",".join(own)
    return urls


def until_reached(timeout_s: float, pause_s: float) -> Retrying:
    """Return a retry policy for Unreachable, which is raised at the end: a restarting node is back in a moment."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    again = retry_if_exception_type(Unreachable)
    return Retrying(retry=again, stop=stop_after_delay(timeout_s), wait=wait_fixed(pause_s), reraise=True)


class Cluster(Options):
    """Connects at the first question, and closes at the end of its block."""

    def __init__(self, config: ConfigOption = None, url: UrlOption = None, timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S) -> None:
        self.config = config
        self.url = url
        self.timeout_s = timeout_s
        """Timeout of each answer."""
        self._stack = ExitStack()
        self._clients: dict[str, Client] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def file(self) -> ClusterConfig | None:
        """The cluster file; None with ``--url``.

        Raises typer.BadParameter when no option names a cluster, or two do; ConfigurationError.
        """
        if self.url is not None and self.config is None:
            return None
        if self.url is not None and self.url != os.environ.get(URL_VARIABLE):
            raise typer.BadParameter("--url and -c are two ways to say which cluster: write one of them")
        if self.config is None and not DEFAULT_CONFIG.exists():
            raise typer.BadParameter(
                f"which cluster? write -c FILE, --url URL, or set {URL_VARIABLE}; there is no {DEFAULT_CONFIG} in this folder"
            )
        return cluster_file(self.config)

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Addresses of nodes by node id (or by address), masters first. Raises as `file` does."""
        if (file := self.file) is None:
            url = self.url or ""
            return {url: url}
        if urls := master_urls(file):
            return urls
        if file.is_embedded:
            raise ConfigurationError(
                f'{file.path}: no master has an http address, so nobody outside of its process can reach it: write http = "127.0.0.1:7201"'
            )
        return {file.name: file.broker}

    @cached_property
    def client(self) -> Client:
        """A client of all masters. Raises typer.BadParameter, ConfigurationError; unreachable nodes show at the first question."""
        urls = ",".join(self.addresses.values())
        if urls.startswith("amqp"):
            logs.to_stderr(logs.COMMAND)
        return self.connect(urls)

    def connect(self, urls: str) -> Client:
        """Return a client of the nodes at these addresses."""
        import brokerha

        return self._stack.enter_context(brokerha.connect(urls, timeout=self.timeout_s))

    @cached_property
    def _urls(self) -> dict[str, str]:
        addresses = self.addresses
        if (file := self.file) is None:
            return addresses
        found = master_urls(file)
        return {master.id: found.get(master.id) or file.broker_of(master.id) for master in file.masters}

    @property
    def masters(self) -> list[str]:
        """Ids of the masters; with ``--url`` the address instead of the id. Raises typer.BadParameter, ConfigurationError."""
        return list(self._urls)

    @property
    def masters_of_file(self) -> list[str]:
        """Ids of the masters that the cluster file names; empty with ``--url``."""
        return [] if self.file is None else self.masters

    def is_worker_of_file(self, worker: str) -> bool:
        """Tell whether the cluster file contains this worker."""
        return self.file is not None and self.file.roles.get(worker) == "worker"

    def at(self, master: str) -> Client:
        """Return a client of one master only. Raises typer.BadParameter when the file has no master of this id."""
        if master not in self._urls:
            if self.file is None and len(self._urls) == 1:
                return self.at(self.masters[0])
            raise typer.BadParameter(f"{master!r} is no master of this cluster; masters are {', '.join(self._urls)}")
        if master not in self._clients:
            address = self._urls[master]
            self._clients[master] = self._by_broker(master, address) if address.startswith("amqp") else self.connect(address)
        return self._clients[master]

    def _by_broker(self, master: str, url: str) -> Client:
        from brokerha.client.client import Client
        from brokerha.transports.client.wire import AmqpWire

        logs.to_stderr(logs.COMMAND)
        return self._stack.enter_context(Client(AmqpWire(url, to=master), self.timeout_s))

    def command(self, master: str, name: str, /, **arguments: Any) -> Row:
        """Run a command at one master."""
        return self.at(master).command(name, arguments)

    def ask(self, master: str, name: str, /, **arguments: Any) -> Row:
        """Run a command at one of several masters, with a short timeout, so that one that is away does not delay the others."""
        return self.at(master).command(name, arguments, timeout=min(SURVEY_S, self.timeout_s))

    def master_of(self, worker: str) -> str:
        """Return the master of a worker or process. Raises InvalidRequest when no master has it, Unreachable when one is silent."""
        if self.file is None:
            return self.masters[0]
        if worker in self.file.roles:
            return self.file.master_of(worker)
        answers, silent = self.worker_lists()
        known = []
        for master, answer in answers.items():
            known += [row["id"] for row in answer["workers"]]
            if worker in known:
                return master
        if silent:
            unknown = "; ".join(silent.values())
            raise Unreachable(f"{worker} is not in the cluster file, and these masters do not answer: {unknown}")
        raise InvalidRequest(f"no master has a worker {worker}; there are {', '.join(known) or 'none'}")

    def worker_lists(self) -> tuple[dict[str, Row], dict[str, str]]:
        """Return each master's list of workers, and why a master did not answer. Raises Unreachable when all fail."""
        answers, silent = {}, {}
        for master in self.masters:
            try:
                answers[master] = self.ask(master, "workers")
            except (Unreachable, TimedOut) as error:
                silent[master] = str(error)
        if not answers:
            raise Unreachable("; ".join(silent.values()))
        return answers, silent
