"""Who asks a node for a support bundle is told by the environment, and to nobody who should not hear it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from brokerha.doctor.cluster_facts import text_of
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.nodes import MasterEntry

CONFIG = ClusterConfig(
    name="c",
    broker="amqp://h/c",
    masters=(MasterEntry("near", "127.0.0.1:7201"), MasterEntry("far", "10.0.0.9:7201")),
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Headers of the requests that were sent; each is answered."""
    found: list[dict[str, str]] = []

    def get(url: str, **named: Any) -> httpx2.Response:
        found.append(named["headers"])
        return httpx2.Response(200, text=f"{url} says so")

    monkeypatch.setattr(httpx2, "get", get)
    return found


def test_who_asks_is_told_by_the_environment_alone(sent: list[dict[str, str]], tmp_path: Path):
    (tmp_path / "token").write_text("abc\n")
    assert text_of(CONFIG, "near", "metrics", {"BROKERHA_TOKEN_FILE": str(tmp_path / "token")})
    assert text_of(CONFIG, "near", "metrics", {"BROKERHA_USER": "u", "BROKERHA_PASSWORD": "p"})
    assert text_of(CONFIG, "near", "metrics", {}) == "http://127.0.0.1:7201/metrics says so"
    assert sent == [{"Authorization": "Bearer abc"}, {"Authorization": "Basic dTpw"}, {}]


def test_a_secret_is_not_sent_to_another_machine_in_the_open(sent: list[dict[str, str]]):
    assert text_of(CONFIG, "far", "metrics", {"BROKERHA_TOKEN": "abc"}) is None
    assert sent == []
    assert text_of(CONFIG, "far", "metrics", {"BROKERHA_TOKEN": "abc", "BROKERHA_PLAIN_HTTP": "allowed"})
    assert text_of(CONFIG, "far", "metrics", {})
    assert sent == [{"Authorization": "Bearer abc"}, {}]
