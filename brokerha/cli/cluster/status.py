"""``brokerha status``: one row for each node, and the state of the cluster as exit code.

    cluster orders  epoch 1  degraded  (8 of 9 nodes ok)
    NODE  ROLE    STATE        RECEIVED  APPLIED    LAG  ...
    m1    master  ok            120,441  120,441  0 0 s
    m3    master  unreachable
    m3: did not answer: start the node, or look at its log

If masters are excluded from the epoch, the first line shows it: ``epoch 2 of m1, m2 without m3``. If a master has backups, two more
columns show its primary and its view. The JSON is the contract of the front door, unchanged.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Cluster, FormatOption, columns
from brokerha.cli.common.output import Format
from brokerha.model import states
from brokerha.model.errors import NotReady, Unreachable

COLUMNS = columns(
    "id=NODE", "role", "state", "received_lsn=RECEIVED", "applied_lsn=APPLIED", "lag", "incoming",
    "in_doubt=IN-DOUBT", "items", "fingerprint", "seen",
)  # fmt: skip
COLUMNS_OF_PROCESSES = columns("primary", "view")
"""Shown when a master has backups."""
FINGERPRINT_SHOWN = 12
"""Characters of a fingerprint in the table; JSON has the whole fingerprint."""
CLEAR = "\x1b[H\x1b[2J"


def status(
    cluster: Cluster,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval_s: Annotated[float, typer.Option("--interval-s", min=0.1, metavar="SECONDS", help="Time between two looks.")] = 2.0,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show one row for each node, and what to do.

    Exit code: 0 healthy, 1 degraded (passes by itself once its cause is gone), 2 a person has to act, 3 no node answers.
    """
    if not watch:
        return _show_with_file(cluster, chosen)
    return _watch(cluster, interval_s, chosen)


def _watch(cluster: Cluster, interval_s: float, chosen: Format) -> int:
    """Show the status until Ctrl-C; the exit code is that of the last one."""
    pause = threading.Event()
    code = exits.DONE
    try:
        while True:
            if sys.stdout.isatty() and chosen is Format.TABLE:
                print(CLEAR, end="")
            try:
                code = _show_with_file(cluster, chosen)
            except (Unreachable, NotReady) as error:
                code = exits.exit_code_of(error)
                exits.say(exits.error_line(error))
            sys.stdout.flush()
            pause.wait(interval_s)
    except KeyboardInterrupt:
        return code


def _show_with_file(cluster: Cluster, chosen: Format) -> int:
    """Write the status, and workers of the cluster file that their masters do not have."""
    answer = cluster.client.status()
    code = show(answer, chosen)
    if (file := cluster.file) is not None:
        known = {node["id"]: node["state"] for node in answer["nodes"]}
        silent = {states.UNREACHABLE, states.WAITING_FOR_PRIMARY}
        for worker in file.workers:
            if worker.id not in known and known.get(worker.master, states.UNREACHABLE) not in silent:
                exits.say(
                    f"{worker.master} has no worker {worker.id}, which is in the cluster file: brokerha worker add {worker.id}"
                )
    return code


def show(answer: Mapping[str, Any], chosen: Format) -> int:
    """Write a status; return its exit code."""
    nodes = answer["nodes"]
    if chosen is Format.TABLE:
        print(headline(answer))
        for line in splits(nodes):
            print(line)
        output.console().print(output.table([_row(node) for node in nodes], _columns(nodes)))
        for line in actions(nodes):
            print(line)
    else:
        output.write(answer, nodes, chosen, COLUMNS)
    return exits.exit_code_of_states(node["state"] for node in nodes)


def headline(answer: Mapping[str, Any]) -> str:
    """Describe the cluster in one line; if masters are excluded, with the members and the excluded ones."""
    nodes = answer["nodes"]
    well = sum(node["state"] in states.HEALTHY for node in nodes)
    epoch = f"epoch {answer['epoch']}"
    if answer.get("excluded"):
        epoch += f" of {', '.join(answer['members'])} without {', '.join(answer['excluded'])}"
    return f"cluster {answer['cluster']}  {epoch}  {answer['state']}  ({well} of {len(nodes)} nodes ok)"


def splits(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the strategies for splits other than quorum, and a line for each master that left a split since its start."""
    modes: dict[str, list[str]] = {}
    for node in nodes:
        if node.get("split_recovery") and node["split_recovery"] != "quorum":
            modes.setdefault(f"{node['split_recovery']} (from the {node['split_recovery_from']})", []).append(node["id"])
    lines = [f"split-recovery {mode}: {', '.join(ids)}" for mode, ids in modes.items()]
    told = (node for node in nodes if node.get("splits"))
    return lines + [
        f"{node['id']}: {output.counted(node['splits'], 'split')} since the start, last: {node['last_split']}" for node in told
    ]


def actions(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each unhealthy node: why, and what to do."""
    ill = [node for node in nodes if node["state"] not in states.HEALTHY]
    return [": ".join(part for part in (node["id"], node.get("reason"), _age(node), node.get("action")) if part) for node in ill]


def _age(node: Mapping[str, Any]) -> str:
    """Return how old the reads of a site can be, if its master cannot agree with the others."""
    stale_s = node.get("stale_s")
    return f"reads show what was known {stale_s:,.0f} s ago" if stale_s else ""


def _columns(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    if all(node["role"] != "backup" for node in nodes):
        return COLUMNS
    place = list(COLUMNS).index("state") + 1
    items = list(COLUMNS.items())
    return dict([*items[:place], *COLUMNS_OF_PROCESSES.items(), *items[place:]])


def _row(node: Mapping[str, Any]) -> dict[str, Any]:
    """Format a row for people: lag in transactions and seconds, a short fingerprint."""
    lag, lag_s, seen_s = node.get("lag_entries"), node.get("lag_s"), node.get("seen_s")
    return {
        **node,
        "lag": "" if lag is None else f"{lag:,}" + (f"  {lag_s:,.1f} s" if lag_s is not None else ""),
        "fingerprint": (node.get("fingerprint") or "")[:FINGERPRINT_SHOWN],
        "seen": "" if seen_s is None else f"{seen_s:,.1f} s",
    }
