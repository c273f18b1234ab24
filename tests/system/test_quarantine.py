"""A poisoned message, as its owner meets it: it is found in quarantine, shown, tried again once the reason is gone, or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.cli.main import main
from brokerha.embedded import EmbeddedCluster
from tests.support.configs import config_of
from tests.support.waiting import until
from tests.system.test_amqp_door import WAIT_S, App


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.setenv("BROKERHA_BROKER_URL", vhost_url)
    with EmbeddedCluster(config_of("poison", vhost_url, tmp_path, {"m1": "w1"})) as running:
        running.client("m1").put("ready", b"k", b"v", timeout=WAIT_S)
        yield running


@pytest.fixture
def app(vhost_url: str) -> Iterator[App]:
    program = App(vhost_url)
    yield program
    program.connection.close()


class Operator:
    """Types commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def types(self, *command: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(["quarantine", *command])
        return code, self._capsys.readouterr().out

    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.types("list", "-o", "json")[1])["messages"]
        return found

    def until(self, count: int) -> list[dict[str, object]]:
        """Wait until there are so many."""
        return until(lambda: found if len(found := self.rows()) == count else [], self.rows)


def test_a_poisoned_message_is_found_shown_tried_again_and_dropped(
    cluster: EmbeddedCluster, app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(capsys)
    assert operator.types("list", "-o", "json")[0] == 0
    # Given an update with a content type that nobody knows, and one that is no SPARQL
    wrong = b"INSERT DATA { <urn:wrong> <urn:type> 1 }"
    assert app.send(wrong, "application/sparql", message_id="wrong", headers={"ack": "applied"})[0][1] == "refused"
    assert app.send(b"INSRT", "application/sparql-update", message_id="typo")[0][1] == "refused"
    # Then both are found, with the reason
    code, _ = operator.types("list")
    assert code == 1
    rows = {row["message_id"]: row for row in operator.rows()}
    assert set(rows) == {"typo", "wrong"}
    assert str(rows["wrong"]["reason"]).startswith("UnsupportedType")
    code, shown = operator.types("show", str(rows["wrong"]["id"]))
    assert code == 0
    assert wrong.decode() in shown
    assert "ack: applied" in shown
    # When it is tried again as it is, then it is refused again: it is back, and the other one was not touched
    assert operator.types("retry", str(rows["wrong"]["id"]))[0] == 0
    again = operator.until(2)
    assert [row["message_id"] for row in again] == ["typo", "wrong"]
    # When it is tried again with the type that was meant, then it is written
    identity = str(again[1]["id"])
    assert operator.types("retry", identity, "--content-type", "application/sparql-update", "--header", "ack=accepted")[0] == 0
    assert operator.until(1)[0]["message_id"] == "typo"
    db = cluster.client("m1")
    assert db.query("main", "ASK { <urn:wrong> <urn:type> 1 }", min_lsn="latest", timeout=WAIT_S)
    # And the other one is dropped
    assert operator.types("drop", str(rows["typo"]["id"]))[0] == 0
    assert operator.types("list", "-o", "json")[0] == 0
    # And what is not there is named
    assert operator.types("show", "nothing")[0] == 2
