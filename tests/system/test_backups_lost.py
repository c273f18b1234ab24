"""A primary that loses and regains its backups, or hands over to them, under load over RabbitMQ.

Given a master with two backups that is written to, when backups go, come back empty, or are told to take over, then every write
that was acknowledged is there exactly once on every node, and nothing that was never written is.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from brokerha.model.errors import NotReady, ReadOnly
from tests.support.broker_source import BrokerSource
from tests.support.private_broker import PrivateBroker
from tests.system.tx_site import PROCESSES, SETTINGS, Load, TxSite, tx_site

SYNC_TIMEOUT_S = 1.0
UNANSWERED_S = 20.0


def hook_of(folder: Path) -> Path:
    """A program that notes each change of a role."""
    hook = folder / "role-changed"
    hook.write_text(f'#!/bin/sh\necho "$@" >> {folder}/roles\n', encoding="utf-8")
    hook.chmod(0o755)
    return hook


@pytest.fixture(scope="module")
def module_site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxSite]:
    folder = tmp_path_factory.mktemp("backups")
    settings = SETTINGS.replace("3000", str(round(SYNC_TIMEOUT_S * 1000))) + f'on-role-change = "{hook_of(folder)}"\n'
    with tx_site(broker, folder, "backups-lost", settings=settings) as running:
        yield running


@pytest.fixture
def site(module_site: TxSite) -> TxSite:
    """All of its processes run and are ready."""
    module_site.mend()
    return module_site


def roles(site: TxSite) -> list[list[str]]:
    """Arguments that the program of on-role-change was called with."""
    return [line.split() for line in (site.folder / "roles").read_text("utf-8").splitlines()]


def test_a_hand_over_under_load_loses_nothing_and_the_hook_is_called(site: TxSite):
    primary = site.await_primary()
    successor = next(node for node in PROCESSES if node != primary)
    with Load(site.client, ("over-a", "over-b")) as load:
        load.await_more(site, 20)
        site.run("promote", successor)
        site.await_primary(successor)
        load.await_more(site, 20)
    load.check(site)
    site.await_ready(*PROCESSES)
    view = str(site.until(lambda: site.row("m1", "master").get("view"), "the view is known", 10))
    site.until(lambda: [successor, "m1", "primary", view] in roles(site), "the new primary called its hook", 10)
    site.until(lambda: any(row[:3] == [primary, "m1", "backup"] for row in roles(site)), "and the old one its own", 10)


def test_a_primary_that_is_stopped_under_load_hands_over_first(site: TxSite):
    primary = site.await_primary()
    told = len(roles(site))
    with Load(site.client, ("stopped-a", "stopped-b")) as load:
        load.await_more(site, 20)
        assert site.stop_in_order(primary) == 0
        # One that ends otherwise is primary to its end
        assert [primary, "m1", "backup"] in [row[:3] for row in roles(site)[told:]]
        site.await_primary(*(node for node in PROCESSES if node != primary))
        load.await_more(site, 20)
    load.check(site)


def test_an_empty_backup_joins_while_writes_go_on_and_can_take_over(site: TxSite):
    primary = site.await_primary()
    joining, other = (node for node in PROCESSES if node != primary)
    with Load(site.client, ("join-a", "join-b")) as load:
        load.await_more(site, 10)
        site.kill(joining)
        shutil.rmtree(site.folder / "var" / joining)
        load.await_more(site, 10)
        site.start(joining)
        site.await_ready(joining)
        # From here on it alone holds what the primary has
        site.kill(other)
        load.await_more(site, 10)
        site.start(other)
        site.await_ready(other)
        site.run("promote", joining)
        site.await_primary(joining)
        load.await_more(site, 10)
    load.check(site)


def test_without_any_backup_writes_are_unknown_then_refused_and_go_on_by_themselves_when_one_is_back(site: TxSite):
    primary = site.await_primary()
    backups = [node for node in PROCESSES if node != primary]
    with site.client(primary, timeout=20) as db:
        db.put("t", "before", "v")
        tx = db.transaction().begin()
        tx.publish("lonely", "1")
        tx.flush()
        site.kill(*backups)
        # Asked once: a client would send it again until its own time is over
        began = time.monotonic()
        headers = {"Idempotency-Key": "lonely-write", "Brokerha-Timeout-Ms": f"{UNANSWERED_S * 1000:.0f}"}
        answer = httpx2.put(f"{site.url(primary)}/kv/t/unknown", content=b"v", headers=headers, timeout=30, trust_env=False)
        assert answer.headers["Brokerha-Error"] == "OutcomeUnknown", answer.text
        assert time.monotonic() - began < UNANSWERED_S, "it was the client's own time that ended it"
        with pytest.raises((ReadOnly, NotReady)) as refused:
            db.put("t", "refused", "v", timeout=1)
        assert all(backup in str(refused.value) for backup in backups), refused.value
        response = site.get(primary, "/writable")
        assert response is not None
        assert response.status_code == 503
        assert db.get("t", "before") == b"v"
        with pytest.raises((ReadOnly, NotReady)):
            db.transaction().begin()
        site.start(backups[0])
        site.await_primary(primary)
        outcome = site.until(lambda: db.outcome("lonely-write"), "the outcome is known", 10)
        site.until(lambda: (db.outcome("lonely-write") or outcome)["state"] == "applied", "and it was applied", 10)
        assert db.put("t", "unknown", "v", key="lonely-write").lsn == db.outcome("lonely-write")["lsn"]  # type: ignore[index]
        assert db.get("t", "unknown") == b"v"
        assert db.get("t", "refused") is None
        tx.commit()
        assert [message.body for message in db.queue("lonely")] == [b"1"]
    site.start(backups[1])


def test_purging_all_queues_under_load_loses_nothing(site: TxSite):
    with Load(site.client, ("purge-a", "purge-b")) as load:
        for _ in range(3):
            load.await_more(site, 10)
            site.purge()
        load.await_more(site, 10)
    load.check(site)
    site.await_ready(*site.nodes)
    site.await_clean()


@pytest.mark.campaign
def test_a_restart_of_the_broker_loses_nothing(private_broker: PrivateBroker, tmp_path: Path):
    source = BrokerSource(private_broker.amqp_url, private_broker.management_url, "killed by this test", private_broker)
    with tx_site(source, tmp_path, "backups-broker") as site:
        with Load(site.client, ("broker-a", "broker-b")) as load:
            for _ in range(2):
                load.await_more(site, 20)
                private_broker.kill()
                private_broker.restart()
            load.await_more(site, 20)
            site.await_ready(*site.nodes)
        load.check(site)
        site.await_clean()
