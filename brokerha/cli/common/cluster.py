"""The cluster that a command talks to: as a whole, or one of its masters.

    --url, or -c, or BROKERHA_URL, or ./cluster.toml: the first that is given; --url and -c together are a mistake.

    -c cluster.toml   every master of the file can be asked by its id; a worker's master is the one that the file names, or, for
                      a worker that was added at run time, the one that has it in its list
    --url URL         the master at that address, and no other

A master without an HTTP address is asked through its broker; so is a cluster of which no master has one.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from brokerha.cli.common import logs
from brokerha.cli.common.options import (
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
"""How long one of several masters may take to answer: the others are asked after it."""
Row = dict[str, Any]


def cluster_file(config: Path | None) -> ClusterConfig:
    """The cluster file of ``-c``, or the one of the present folder. Raises ConfigurationError, typer.BadParameter."""
    from brokerha.nodes.config.cluster import load_config

    if config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(f"which cluster? write -c FILE; there is no {DEFAULT_CONFIG} in this folder")
    return load_config(config or DEFAULT_CONFIG, os.environ)


def master_urls(cluster: ClusterConfig) -> dict[str, str]:
    """Addresses of each master that has any, its backups' after its own: one of them may be primary."""
    known = cluster.http_urls()
    urls: dict[str, str] = {}
    for master in cluster.masters_to_ask:
        own = [known[process] for process in cluster.processes_of(master.id) if process in known]
        if own:
            urls[master.id] = ",".join(own)
    return urls


def until_reached(timeout_s: float, pause_s: float) -> Retrying:
    """Calls a function again while it raises Unreachable, which is raised in the end: a node that restarts is back in a moment."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    again = retry_if_exception_type(Unreachable)
    return Retrying(retry=again, stop=stop_after_delay(timeout_s), wait=wait_fixed(pause_s), reraise=True)


class Cluster(Options):
    """Connected to when it is first asked, closed when its block ends."""

    def __init__(self, config: ConfigOption = None, url: UrlOption = None, timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S) -> None:
        self.config = config
        self.url = url
        self.timeout_s = timeout_s
        """How long to wait for each answer."""
        self._stack = ExitStack()
        self._clients: dict[str, Client] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def file(self) -> ClusterConfig | None:
        """The cluster file that is meant; None with ``--url``.

        Raises typer.BadParameter when nothing says which cluster is meant, or two options do; ConfigurationError.
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
        """Addresses of nodes that can be asked, by node id (or by themselves), the masters first. Raises as `file` does."""
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
        """A client of all masters. Raises typer.BadParameter, ConfigurationError; that nobody answers shows with the first question."""
        urls = ",".join(self.addresses.values())
        if urls.startswith("amqp"):
            logs.to_stderr(logs.COMMAND)
        return self.connect(urls)

    def connect(self, urls: str) -> Client:
        """A client of nodes that are named by their addresses."""
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
        """Their ids; with ``--url`` the address stands for the one that is there. Raises typer.BadParameter, ConfigurationError."""
        return list(self._urls)

    @property
    def masters_of_file(self) -> list[str]:
        """Ids of the masters that the cluster file names; empty with ``--url``."""
        return [] if self.file is None else self.masters

    def is_worker_of_file(self, worker: str) -> bool:
        """Whether the cluster file says whose worker this is."""
        return self.file is not None and self.file.roles.get(worker) == "worker"

    def at(self, master: str) -> Client:
        """A client of one master, and of no other. Raises typer.BadParameter when the file has none of this id."""
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
        """Have one master carry out a command."""
        return self.at(master).command(name, arguments)

    def ask(self, master: str, name: str, /, **arguments: Any) -> Row:
        """The same for one of several that are asked: one that is away does not keep those after it waiting."""
        return self.at(master).command(name, arguments, timeout=min(SURVEY_S, self.timeout_s))

    def master_of(self, worker: str) -> str:
        """The master of a worker, or of a process. Raises InvalidRequest when no master has it, Unreachable when one did not answer."""
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
        """What each master says of its workers, and why a master did not answer. Raises Unreachable when none does."""
        answers, silent = {}, {}
        for master in self.masters:
            try:
                answers[master] = self.ask(master, "workers")
            except (Unreachable, TimedOut) as error:
                silent[master] = str(error)
        if not answers:
            raise Unreachable("; ".join(silent.values()))
        return answers, silent
