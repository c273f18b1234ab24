"""``brokerha tx``: transactions that are not over, and ending them by hand.

list       open and prepared ones, and those that were decided by hand
show       what became of one
commit     decide a prepared one by hand
rollback   roll an open one back, or decide a prepared one by hand
forget     what was decided by hand is not reported to its coordinator any more

A prepared transaction belongs to its coordinator. Deciding it by hand may contradict what that one decided elsewhere; it is kept
and reported until it is forgotten, and asks for ``--yes``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.common.output import Format
from brokerha.model import states
from brokerha.model.errors import NotFound
from brokerha.model.ids import maker_of

if TYPE_CHECKING:
    from brokerha.client import Client

COLUMNS = {
    "txid": "TRANSACTION", "xid": "XID", "state": "STATE", "outcome": "OUTCOME", "operations": "OPERATIONS", "bytes": "BYTES",
    "idle_s": "IDLE S", "node": "MASTER",
}  # fmt: skip

SILENT = frozenset({states.UNREACHABLE, states.WAITING_FOR_PRIMARY})
"""States of a master that cannot be asked for its transactions."""

app = typer.Typer(
    help="Transactions that are not over: list, show, commit, rollback, forget.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NameArgument = Annotated[str, typer.Argument(metavar="TXID|XID", help="Transaction id, or xid as tx list shows it.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it although its coordinator may have decided otherwise.")]


@app.command("list")
def list_transactions(
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """List all transactions that are open, prepared, or decided by hand and not forgotten.

    Exit code 1 when a master does not answer: it is named, and its transactions are not in the list.
    """
    with connected(config, url) as client:
        nodes = client.status(timeout=timeout_s)["nodes"]
        rows = client.open_transactions(timeout=timeout_s)
    output.write({"transactions": rows}, rows, chosen, COLUMNS)
    silent = [node["id"] for node in nodes if node["role"] == "master" and node["state"] in SILENT]
    if silent:
        exits.say(f"{', '.join(silent)} did not answer: what is open or prepared there is not listed")
    return exits.DEGRADED if silent else exits.DONE


@app.command()
def show(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show what became of a transaction. Exit code 2 when nobody knows it."""
    with connected(config, url) as client:
        row = _found(client, name, timeout_s)
        txid = row["txid"] if row is not None else name
        answer = {**(client.outcome(txid, timeout=timeout_s) or {}), **(row or {})}
    if not answer:
        raise NotFound(f"transaction {name} is not known: it was never begun here, or is forgotten")
    if chosen is Format.TABLE:
        print("\n".join(f"{field}: {'' if value is None else value}" for field, value in answer.items()))
    else:
        output.write(answer, [answer], chosen, {})
    return exits.DONE


@app.command()
def commit(
    name: NameArgument,
    yes: YesOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Commit a prepared transaction by hand."""
    return _decide("commit", name, yes, config, url, timeout_s, chosen)


@app.command()
def rollback(
    name: NameArgument,
    yes: YesOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Roll back a prepared transaction by hand.

    Also one that a master had prepared which was removed for good: by its transaction id, which a rejection names.
    """
    return _decide("rollback", name, yes, config, url, timeout_s, chosen)


@app.command()
def forget(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Forget a transaction that was decided by hand."""
    with connected(config, url) as client:
        row = _needed(client, name, timeout_s)
        answer = client.end_transaction("forget", row["node"], row["txid"], timeout=timeout_s)
    return _done(row, answer, chosen)


def _decide(
    action: str, name: str, yes: bool, config: Path | None, url: str | None, timeout_s: float, chosen: Format
) -> int:
    if not yes:
        message = (
            f"{action} by hand may contradict what the coordinator of the transaction decided elsewhere: look at tx show {name},"
            " then write --yes"
        )
        raise typer.BadParameter(message)
    with connected(config, url) as client:
        row = _found(client, name, timeout_s)
        if row is None and action == "rollback" and maker_of(name):
            row = _left_behind(client, name, timeout_s)
        elif row is None:
            raise _unknown(name)
        answer = client.end_transaction(
            action, row["node"], row["txid"], by_hand=row["state"] in {"placed", "prepared"}, timeout=timeout_s
        )
    return _done(row, answer, chosen)


def _found(client: Client, name: str, timeout_s: float) -> dict[str, Any] | None:
    rows = client.open_transactions(timeout=timeout_s)
    return next((row for row in rows if name in (row["txid"], row["xid"])), None)


def _needed(client: Client, name: str, timeout_s: float) -> dict[str, Any]:
    row = _found(client, name, timeout_s)
    if row is None:
        raise _unknown(name)
    return row


def _left_behind(client: Client, txid: str, timeout_s: float) -> dict[str, Any]:
    """What a master may have prepared that does not exist any more: any other one can roll it back, and says when it must not."""
    nodes = client.status(timeout=timeout_s)["nodes"]
    masters = [node["id"] for node in nodes if node["role"] == "master" and node["state"] not in SILENT]
    if not masters:
        raise _unknown(txid)
    maker = maker_of(txid)
    return {"txid": txid, "xid": "", "node": maker if maker in masters else masters[0], "state": "prepared"}


def _unknown(name: str) -> NotFound:
    return NotFound(f"no transaction {name} is open, prepared or decided by hand at the masters that answer")


def _done(row: dict[str, Any], answer: dict[str, Any], chosen: Format) -> int:
    facts = {"txid": row["txid"], "xid": row["xid"] or None, "state": answer["state"], "lsn": answer.get("lsn") or None}
    if chosen is Format.TABLE:
        place = f", LSN {facts['lsn']:,}" if facts["lsn"] else ""
        print(f"{facts['state']}: transaction {facts['txid']}{place}")
    else:
        output.write(facts, [facts], chosen, {})
    return exits.DONE
