"""A cluster file with two masters and a worker of each, and clients that hand what reaches a master to the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, Self

import pytest

import brokerha
from tests.unit.cli.fake_cluster import answer, node

FILE = """\
[cluster]
name = "orders"
broker = "amqp://h"
[[master]]
id = "m1"
http = "127.0.0.1:7201"
[[master]]
id = "m2"
http = "127.0.0.1:7202"
[[worker]]
id = "w1"
master = "m1"
[[worker]]
id = "w2"
master = "m2"
"""
URLS = {"http://127.0.0.1:7201": "m1", "http://127.0.0.1:7202": "m2"}


class Commanded(Protocol):
    """Both masters, as a test has them answer."""

    def command(self, master: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What this master answers; raises what it refuses with."""


class Connected:
    """A client of one master."""

    def __init__(self, sites: Commanded, master: str, waits: list[float | None]) -> None:
        self._sites = sites
        self._master = master
        self._waits = waits

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def command(self, name: str, arguments: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        assert timeout is None or timeout > 0
        self._waits.append(timeout)
        return self._sites.command(self._master, name, arguments)

    def status(self, timeout: float = 1.0) -> dict[str, Any]:
        return answer(node("m1", "master"), node("m2", "master"), node("w1"), node("w2", master="m2"))


def put(sites: Commanded, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[float | None]:
    """Write the cluster file to `folder`, and connect to `sites`; of several addresses the first one counts.

    Returns how long each command is waited for, as they come; None is the time of the client.
    """
    (folder / "cluster.toml").write_text(FILE)
    waits: list[float | None] = []
    monkeypatch.setattr(brokerha, "connect", lambda url, timeout: Connected(sites, URLS[url.split(",")[0]], waits))
    return waits
