"""`brokerha node pause|coin|continue` over RabbitMQ, by the command line alone (replication, section 9).

Given a master with two backups and a worker of each kind, when one backup is paused, killed and started again while others write, then it stands
where it stood until it is coined on the primary of now and told to continue; then it has everything, and takes over as any other.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.system.processes import command
from tests.system.tx_site import TxSite, of_module

site = of_module("pausing")


def order(site: TxSite, command: str, node: str, *words: str) -> dict[str, Any]:
    answer = json.loads(site.run("node", command, node, *words, "-o", "json"))
    assert answer["node"] == node
    return dict(answer)


def refused(site: TxSite, *words: str) -> str:
    """What a command says that ends with 2."""
    done = command(*words, "-c", str(site.path))
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.removeprefix("brokerha: ").removesuffix("\n")


def stands_at(reason: str) -> str:
    found = re.search(r"at record \d+ of view \d+", reason)
    assert found, reason
    return found[0]


def put(site: TxSite, *keys: str) -> None:
    for key in keys:
        site.run("put", "t", key, "v")


def paused_row(site: TxSite, node: str) -> dict[str, Any]:
    """Its row in `brokerha status`, once that says that it is paused."""

    def row() -> dict[str, Any]:
        status = json.loads(site.run("status", "-o", "json", code=1))
        return next((row for row in status["nodes"] if row["id"] == node and row["state"] == "paused"), {})

    return dict(site.until(row, f"{node} is shown as paused"))


def test_a_paused_backup_stands_where_it_stood_over_kill_9_until_it_is_coined(site: TxSite) -> None:
    primary = site.await_primary()
    backup = next(node for node in site.processes if node != primary)
    put(site, "before")
    paused = order(site, "pause", backup)
    assert (paused["changed"], paused["state"]) == (True, "paused")
    place = stands_at(paused["reason"])
    put(site, "while-paused")
    site.kill(backup)
    site.start(backup)
    put(site, "after-kill-9")
    row = paused_row(site, backup)
    assert stands_at(row["reason"]) == place
    assert row["action"] == f"brokerha node coin {backup}, then brokerha node continue {backup}, bring it back"
    # Its row may be the one of before: its door is not open yet
    ready = site.until(lambda: site.get(backup, "/readyz"), f"{backup} answers")
    assert ready.status_code == 503
    assert order(site, "pause", backup)["changed"] is False

    assert refused(site, "node", "continue", backup) == (
        f"{backup} was not coined since it was paused: first brokerha node coin {backup}"
    )
    assert stands_at(paused_row(site, backup)["reason"]) == place
    coined = order(site, "coin", backup)
    assert f"coined on {primary} in view" in coined["reason"]
    assert coined["state"] == "paused"
    assert order(site, "continue", backup)["changed"] is True
    site.await_ready(backup)
    assert order(site, "continue", backup)["changed"] is False
    # What it missed is there when it is primary.
    site.run("promote", backup)
    assert site.await_primary(backup) == backup
    for key in ("before", "while-paused", "after-kill-9"):
        assert site.run("get", "t", key).strip() == "v"


def test_a_coin_on_a_former_primary_is_stale_and_its_vote_counts(site: TxSite) -> None:
    primary = site.await_primary()
    backup, other = (node for node in site.processes if node != primary)
    site.await_ready(backup, other)
    order(site, "pause", backup)
    order(site, "coin", backup)
    site.kill(primary)
    # Two votes of three make a primary, so the paused one gave its own; it is never the one.
    assert site.await_primary(backup, other) == other
    site.start(primary)
    site.await_ready(primary)
    said = refused(site, "node", "continue", backup)
    assert re.fullmatch(
        rf"{backup} was coined on {primary} in view \d+, and {other} is primary in view \d+ now: first brokerha node coin {backup}",
        said,
    )
    order(site, "coin", backup)
    order(site, "continue", backup)
    site.await_ready(backup)


def test_a_primary_is_not_paused_and_a_worker_is_switched_off_and_on(site: TxSite) -> None:
    primary = site.await_primary()
    assert refused(site, "node", "pause", primary).startswith(f"{primary} is primary of m1: first brokerha promote")
    paused = order(site, "pause", "w2")
    assert (paused["changed"], paused["state"]) == (True, "off")
    listed = json.loads(site.run("worker", "list", "-o", "json"))["workers"]
    assert {row["id"]: row["switched_on"] for row in listed} == {"w1": True, "w2": False}
    assert "w2 is off already" in site.run("worker", "off", "w2")
    assert refused(site, "node", "coin", "w2").startswith("w2 is a worker: its master coins it when it continues")
    assert order(site, "continue", "w2")["changed"] is True
    site.until(lambda: site.row("w2", "worker").get("state") == "on", "w2 is in sync")
