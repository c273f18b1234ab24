"""``brokerha splits``: transactions that were given up in a split. ``brokerha split-recovery``: the strategy for splits.

One master is asked: the first that answers, or that of `--master`. Each has its own records, so the answer names the master.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, Group, Row, columns
from brokerha.cli.common.terminal import Waiting
from brokerha.model.errors import NotReady, TimedOut, Unreachable

LIST_COLUMNS = columns(
    "number=SPLIT", "last_write=LAST WRITE GIVEN UP", "epoch", "lineage", "lsn=BACK TO LSN", "total=GIVEN UP",
    "effect=WHAT BECAME OF IT",
)  # fmt: skip
SHOW_COLUMNS = columns(
    "lsn", "txid=TRANSACTION", "origin=MASTER", "outcome", "new_lsn=LSN NOW", "new_outcome=OUTCOME NOW", "effect",
    "reason",
)  # fmt: skip
SHOWN = 100
"""Most transactions that are shown without ``--all``."""
PAGE_ENTRIES = 1_000
SURVEY_S = 5.0
"""Time in which a master must answer before another one is asked."""
DEFAULT_WAIT_S = 60.0

app = Group("Splits that are over: list, show.")

MasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="The master to ask; without it the first that answers.")]


@app.command("list")
def list_splits(cluster: Cluster, master: MasterOption = "") -> Answer:
    """Show when sides of a split came together: the newest first, and what became of the transactions that a master gave up.

    With -o json {master, splits: [{number, last_write, epoch, lineage, lsn, keeps_content, total, held, effects, counted}]}; epoch is the one
    that was given up, last_write in microseconds or null, held how many of the total are still listed, effects how many of the first `counted`
    of these had which effect.
    """
    _, answer = _ask(cluster, master, "splits")
    rows = [{**split, "effect": _effects(split)} for split in answer["splits"]]
    shown = [{**row, "last_write": _when(row["last_write"])} for row in rows]
    remark = f"the book of {answer['master']}; each master has its own"
    return Answer(answer, rows, LIST_COLUMNS, shown, remarks=[remark])


@app.command()
def show(
    cluster: Cluster,
    number: Annotated[int, typer.Argument(metavar="SPLIT", min=0, help="Number of the split, as splits list says it.")],
    everything: Annotated[bool, typer.Option("--all", help=f"All transactions, not only the first {SHOWN}.")] = False,
    master: MasterOption = "",
) -> Answer:
    """Show the transactions that a master gave up in a split: their LSN and outcome then, and now.

    With -o json the split as splits list has it, and {entries: [{lsn, txid, origin, outcome, new_lsn, new_outcome, reason, effect}], next};
    what is not known is null, next is the LSN of the first one that is not shown, or null. Numbers are those of one master: name it where
    several have had splits.
    """
    limit = PAGE_ENTRIES if everything else SHOWN
    at, answer = _ask(cluster, master, "split", number=number, limit=limit)
    while everything and answer["next"] is not None:
        page = cluster.command(at, "split", **{"number": number, "from": answer["next"], "limit": limit})
        answer = {**answer, "entries": [*answer["entries"], *page["entries"]], "next": page["next"]}
    back_to = f"LSN {answer['lsn']:,} of epoch {answer['epoch']} (lineage {answer['lineage']})"
    given_up = f"{output.counted(answer['total'], 'transaction')} given up: {_effects(answer) or 'nothing to tell'}"
    remarks = [f"{answer['master']} went back to {back_to}: {given_up}"]
    if answer["next"] is not None:
        remarks.append(f"{answer['held'] - len(answer['entries']):,} more: --all")
    if answer["held"] < answer["total"]:
        remarks.append(f"of {answer['total']:,} the first {answer['held']:,} are still listed")
    return Answer(answer, answer["entries"], SHOW_COLUMNS, remarks=remarks)


def split_recovery(
    cluster: Cluster,
    mode: Annotated[str, typer.Argument(metavar="[MODE]", help="none, simple, smart or quorum; without it what is in force.")] = "",
    wait_s: Annotated[
        float,
        typer.Option("--wait-s", min=0, metavar="SECONDS", help="How long to wait until all masters have it; 0: only begin it."),
    ] = DEFAULT_WAIT_S,
    master: MasterOption = "",
) -> Answer:
    """Show or choose the strategy for splits: none, simple, smart or quorum, for all masters while the cluster runs.

    All masters must be reachable: during a split it is refused, with the names of the missing ones. It overrides the cluster files, and is
    kept over restarts. A change from or to quorum has a step in between, such as to-smart, which every master must have first. With -o json
    {master, mode, source: file or epoch, epoch, files: {master: word}, differing: {master: word}, change: {mode, state, stage}, changed}.
    Exit code 1 when masters follow different ones.
    """
    if mode:
        answer = _chosen(cluster, master, mode.lower(), wait_s)
        text = _done(answer)
    else:
        answer = {**_ask(cluster, master, "split-recovery")[1], "changed": False}
        text = f"{answer['mode']} (from the {answer['source']}, as {answer['master']} says)"
    code = exits.DEGRADED if answer["differing"] else exits.DONE
    return Answer(answer, text=text, remarks=_remarks(answer), code=code)


def _chosen(cluster: Cluster, master: str, mode: str, wait_s: float) -> Row:
    """Request the strategy, and wait until it is in force. Raises InvalidRequest, NotReady, TimedOut, Unreachable."""
    waiting, has_changed = Waiting(wait_s), False
    while True:
        at, answer = _ask(cluster, master, "split-recovery", mode=mode)
        has_changed = has_changed or answer["changed"]
        # A restarted master has forgotten the request, so it is repeated.
        while (change := answer["change"]) is not None and change["mode"] == mode:
            if change["state"] == "done" or not waiting.is_wanted:
                return {**answer, "changed": has_changed}
            if change["state"] == "failed":
                raise NotReady(f"{mode} is not in force everywhere: {change['stage']}")
            late = f"{mode} is not in force everywhere yet: {change['stage']}; brokerha split-recovery tells what became of it"
            waiting.pause(change["stage"], late)
            try:
                answer = cluster.command(at, "split-recovery")
            except (Unreachable, TimedOut):
                break
        waiting.pause(
            "", f"whether {mode} is in force is unknown, {at} does not tell: brokerha split-recovery {mode} says it again"
        )


def _done(answer: Mapping[str, Any]) -> str:
    mode = answer["change"]["mode"]
    if not answer["changed"]:
        return f"{mode} is in force: nothing was changed"
    if answer["change"]["state"] == "done":
        return f"{mode} is in force at all masters since epoch {answer['epoch']}; bring the files up to date"
    return f"it has begun: {answer['change']['stage']}; see brokerha split-recovery"


def _remarks(answer: Mapping[str, Any]) -> list[str]:
    """Return the masters with another strategy, the running change, and files that differ from the strategy in force."""
    remarks = [f"{node} follows {mode}, {answer['master']} {answer['mode']}" for node, mode in answer["differing"].items()]
    if answer["differing"]:
        remarks.append("the next epoch makes them one; choose it: brokerha split-recovery MODE")
    change = answer["change"]
    if change is not None and change["state"] != "done":
        remarks.append(f"{change['mode']}: {change['state']}: {change['stage']}")
    if answer["source"] == "epoch":
        old = [node for node, mode in answer["files"].items() if mode != answer["mode"]]
        if old:
            remarks.append(
                f"{answer['mode']} goes before the files, which say something else at {', '.join(old)}: bring them up to date"
            )
    return remarks


def _ask(cluster: Cluster, master: str, name: str, **arguments: Any) -> tuple[str, Row]:
    """Return (master, its answer): of the named one, or the first that answers. Raises its refusal, Unreachable."""
    if master:
        return master, cluster.command(master, name, **arguments)
    silent: list[str] = []
    for at in cluster.masters:
        try:
            answer = cluster.at(at).command(name, arguments, timeout=min(SURVEY_S, cluster.timeout_s))
        except (Unreachable, TimedOut) as error:
            silent.append(f"{at}: {error}")
        else:
            for reason in silent:
                exits.say(reason)
            return at, answer
    raise Unreachable("; ".join(silent))


def _effects(split: Mapping[str, Any]) -> str:
    """Return the effects on the given-up transactions, and on how many of them, if not all were counted."""
    named = ", ".join(f"{count:,} {effect}" for effect, count in split["effects"].items() if count)
    is_part = split["counted"] < split["held"]
    return f"of the first {split['counted']:,}: {named}" if is_part and named else named


def _when(timestamp_us: int | None) -> str:
    return output.time_text(timestamp_us)[:19] if timestamp_us is not None else ""
