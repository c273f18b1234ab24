"""A cluster that answers as a test says, and a command that runs in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import brokerha
from brokerha.cli.main import main
from tests.unit.cli.fake_cluster import FakeClient


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No cluster file in the present folder, nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("BROKERHA_URL", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys) -> Callable[..., Ran]:
    def command(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture
def cluster(monkeypatch) -> Callable[..., FakeClient]:
    """Put a fake client in place of `brokerha.connect`; remembers the address as its first call."""

    def install(**answers: Any) -> FakeClient:
        client = FakeClient(**answers)

        def connect(address: str, timeout: float) -> FakeClient:
            assert timeout > 0
            client.calls.append(("connect", address))
            return client

        monkeypatch.setattr(brokerha, "connect", connect, raising=False)
        return client

    return install
