"""``brokerha tx``: transactions that are not over, and decisions by hand.

A prepared transaction belongs to its coordinator. A decision by hand can contradict the coordinator's decision elsewhere. So it
asks first, or needs ``--yes``, and is kept and reported until it is forgotten.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, Cluster, Group, columns
from brokerha.cli.common.terminal import YesOption, confirm
from brokerha.model import states
from brokerha.model.errors import NotFound
from brokerha.model.ids import maker_of
from brokerha.model.reserved.staging import DROP

COLUMNS = columns("txid=TRANSACTION", "xid", "state", "outcome", "operations", "bytes", "idle_s", "node=MASTER")

STAGED_COLUMNS = columns("txid=TRANSACTION", "parts", "bytes", "items", "user", "age=LAST PART")
SILENT = frozenset({states.UNREACHABLE, states.WAITING_FOR_PRIMARY})
"""States of a master that cannot be asked for its transactions."""

app = Group("Transactions that are not over: list, show, commit, rollback, forget, staged, drop-staged.")

NameArgument = Annotated[str, typer.Argument(metavar="TXID|XID", help="Transaction id, or xid as tx list shows it.")]


@app.command("list")
def list_transactions(cluster: Cluster) -> Answer:
    """List transactions that are not over: open, prepared, or decided by hand and not forgotten.

    Exit code 1 when a master does not answer: it is named, and its transactions are not in the list.
    """
    nodes = cluster.client.status()["nodes"]
    rows = cluster.client.open_transactions()
    silent = [node["id"] for node in nodes if node["role"] == "master" and node["state"] in SILENT]
    if not silent:
        return Answer({"transactions": rows}, rows, COLUMNS)
    remark = f"{', '.join(silent)} did not answer: what is open or prepared there is not listed"
    return Answer({"transactions": rows}, rows, COLUMNS, remarks=[remark], code=exits.DEGRADED)


@app.command()
def show(cluster: Cluster, name: NameArgument) -> Answer:
    """Show what became of a transaction. Exit code 2 when no master knows it."""
    row = _found(cluster, name) or {}
    answer = {**(cluster.client.outcome(row.get("txid", name)) or {}), **row}
    if not answer:
        raise NotFound(f"transaction {name} is not known: it was never begun here, or is forgotten")
    return Answer(answer, text="\n".join(f"{field}: {'' if value is None else value}" for field, value in answer.items()))


@app.command()
def commit(cluster: Cluster, name: NameArgument, yes: YesOption = False) -> Answer:
    """Commit a prepared transaction by hand."""
    return _decide(cluster, "commit", name, yes)


@app.command()
def rollback(cluster: Cluster, name: NameArgument, yes: YesOption = False) -> Answer:
    """Roll back a prepared transaction by hand.

    Also one that was prepared by a master that was removed for good: give its transaction id, which a rejection names.
    """
    return _decide(cluster, "rollback", name, yes)


@app.command()
def forget(cluster: Cluster, name: NameArgument) -> Answer:
    """Forget a transaction that was decided by hand."""
    row = _found(cluster, name)
    if row is None:
        raise _unknown(name)
    return _ended(cluster, "forget", row)


@app.command()
def staged(cluster: Cluster) -> Answer:
    """List large transactions with staged parts: with -o json {"staged": [{txid, parts, bytes, items, user, last_us}]}.

    If its program ended without a commit, a transaction is dropped an hour after its last part, or by drop-staged.
    """
    found = cluster.client.staged(min_lsn="latest")
    now_us = time.time_ns() // 1000
    rows = [{**each, "age": f"{max(0, now_us - each['last_us']) // 1_000_000} s"} for each in found]
    return Answer({"staged": found}, rows, STAGED_COLUMNS)


@app.command("drop-staged")
def drop_staged(cluster: Cluster, name: NameArgument) -> Answer:
    """Drop the staged parts of a large transaction: its program ended without a commit.

    They are also dropped an hour after the last part, when another large transaction begins.
    """
    done = cluster.client.write([(DROP, name)], ack="applied")
    return Answer(
        {"txid": name, "state": "dropped", "lsn": done.lsn},
        text=f"dropped: nothing of transaction {name} is staged, LSN {done.lsn:,}",
    )


def _decide(cluster: Cluster, action: str, name: str, yes: bool) -> Answer:
    confirm(
        f"{action} by hand may contradict what the coordinator of the transaction decided elsewhere: look at tx show {name}", yes
    )
    row = _found(cluster, name)
    if row is None and action == "rollback" and maker_of(name):
        row = _left_behind(cluster, name)
    elif row is None:
        raise _unknown(name)
    return _ended(cluster, action, row, by_hand=row["state"] in {"placed", "prepared"})


def _ended(cluster: Cluster, action: str, row: dict[str, Any], **more: Any) -> Answer:
    answer = cluster.client.end_transaction(action, row["node"], row["txid"], **more)
    facts = {"txid": row["txid"], "xid": row["xid"] or None, "state": answer["state"], "lsn": answer.get("lsn") or None}
    place = f", LSN {facts['lsn']:,}" if facts["lsn"] else ""
    return Answer(facts, text=f"{facts['state']}: transaction {facts['txid']}{place}")


def _found(cluster: Cluster, name: str) -> dict[str, Any] | None:
    rows = cluster.client.open_transactions()
    return next((row for row in rows if name in (row["txid"], row["xid"])), None)


def _left_behind(cluster: Cluster, txid: str) -> dict[str, Any]:
    """Return a transaction that a removed master can have prepared. Any other master can roll it back, or refuses to."""
    nodes = cluster.client.status()["nodes"]
    masters = [node["id"] for node in nodes if node["role"] == "master" and node["state"] not in SILENT]
    if not masters:
        raise _unknown(txid)
    maker = maker_of(txid)
    return {"txid": txid, "xid": "", "node": maker if maker in masters else masters[0], "state": "prepared"}


def _unknown(name: str) -> NotFound:
    return NotFound(f"no transaction {name} is open, prepared or decided by hand at the masters that answer")
