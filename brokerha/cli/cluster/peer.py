"""``brokerha peer``: the masters of the cluster, and changes of them at run time.

One master is asked: the one in the latest epoch among those that answer, or the one of `--master`. Each command waits until the
masters agree, and reports on standard error what it waits for. Repeating a command continues it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, Cluster, Group, Row, columns
from brokerha.cli.common.terminal import PAUSE_S, Waiting, YesOption, confirm
from brokerha.model.errors import InvalidRequest, NotReady, OutcomeUnknown, TimedOut, Unreachable

if TYPE_CHECKING:
    from brokerha.client import Client


COLUMNS = columns("node=MASTER", "standing", "heard", "epoch", "lsn", "lag", "journal")
JOURNAL_SHOWN = 8
"""Characters of a journal's name in the table; JSON has the whole name."""
DEFAULT_WAIT_S = 300.0

app = Group("Masters: list, add, remove, replace.")

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Id of the master.")]
MasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="The master to ask; without it one in the latest epoch.")]
WaitOption = Annotated[
    float, typer.Option("--wait-s", min=0, metavar="SECONDS", help="How long to wait until it is done; 0: only begin it.")
]


@app.command("list")
def list_peers(cluster: Cluster, master: MasterOption = "") -> Answer:
    """Show all masters as one of them sees them.

    With -o json {master, epoch, proposer, masters, members, before, retired: [{node, journal}], refused, change: {kind, node, state, stage,
    forced}, peers: [{node, standing, heard, heard_s, epoch, journal, other_journal, lsn, lag}]}. Exit code 1 when one is not heard or no member.
    """
    _, answer = _survey(cluster, master)
    rows = answer["peers"]
    shown = [{**row, "journal": row["journal"][:JOURNAL_SHOWN], "heard": "yes" if row["heard"] else "no"} for row in rows]
    is_well = all(row["heard"] and row["standing"] == "member" for row in rows)
    code = exits.DONE if is_well else exits.DEGRADED
    return Answer(answer, rows, COLUMNS, shown, remarks=_remarks(answer, cluster.masters_of_file), code=code)


def _remarks(answer: Row, named: list[str]) -> list[str]:
    """Return the running change, masters with another journal, and differences from the cluster file."""
    remarks = [answer["refused"]] if answer["refused"] else []
    if (change := answer["change"]) is not None:
        remarks.append(f"{change['kind']} {change['node']}: {change['state']}: {change['stage']}")
    remarks += [
        f"{row['node']} is there with another journal than the one it had: brokerha peer replace {row['node']}"
        for row in answer["peers"]
        if row["other_journal"]
    ]
    if named and (gone := sorted({*named} - {*answer["masters"]})):
        remarks.append(f"the cluster file names {', '.join(gone)}: no master; take it out of the file, or add it")
    if named and (more := sorted({*answer["masters"]} - {*named})):
        remarks.append(f"the cluster file does not name the master {', '.join(more)}: write it into the file")
    return remarks


@app.command()
def add(cluster: Cluster, node: NodeArgument, master: MasterOption = "", wait_s: WaitOption = DEFAULT_WAIT_S) -> Answer:
    """Make a node a master of the cluster.

    Start it first, with an empty data directory and a cluster file that names all masters and itself: it waits until it is added. Then it takes
    over everything that the others have, while these go on writing.
    """
    answer = _Change(cluster, "add", node, master, wait_s).carry_out()
    done = f"{node} is a master now, with {_named(answer)}; write it into the cluster files of the others, too"
    return _told(answer, done, f"{node} is a master already: nothing was changed")


@app.command()
def remove(
    cluster: Cluster,
    node: NodeArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Although a majority is not heard, because it is gone for good. What only those hold is lost."
        ),
    ] = False,
    master: MasterOption = "",
    wait_s: WaitOption = DEFAULT_WAIT_S,
    yes: YesOption = False,
) -> Answer:
    """Take a master out of the cluster, for good: with the journal that it has it never comes back.

    If it is heard, everything that it has accepted is synchronised first. If not, what only it has accepted is lost to the cluster.
    """
    change = _Change(cluster, "remove", node, master, wait_s, force=force)
    if node in change.masters():
        confirm(f"{node} is taken out for good{', before a majority agrees' if force else ''}", yes)
    answer = change.carry_out()
    done = f"{node} is no master any more; left: {_named(answer)}. Stop its processes, and take it out of the cluster files"
    return _told(answer, done, f"{node} is no master: nothing was changed")


@app.command()
def replace(
    cluster: Cluster, node: NodeArgument, master: MasterOption = "", wait_s: WaitOption = DEFAULT_WAIT_S, yes: YesOption = False
) -> Answer:
    """Bring a master back whose disk was lost: take it out, and add it with its new journal.

    Start it with an empty data directory, before or meanwhile. Transactions that only its lost disk held are lost.
    """
    found, is_there = _look(cluster, master, node)
    if is_there:
        answer = {"kind": "replace", "node": node, "changed": False, "masters": found["masters"]}
        return _told(answer, "", f"{node} is there with the journal that it had: nothing was changed")
    confirm(f"{node} is taken out with the journal that it had, and added with a new one", yes)
    deadline_s = time.monotonic() + wait_s
    if node in found["masters"]:
        _Change(cluster, "remove", node, master, max(wait_s, PAUSE_S)).carry_out()
        exits.say(f"{node} is taken out; next it is added with its new journal")
    answer = _Change(cluster, "add", node, master, max(0.0, deadline_s - time.monotonic())).carry_out()
    return _told({**answer, "kind": "replace"}, f"{node} is a master again, with {_named(answer)}", f"{node} is a master")


def _look(cluster: Cluster, master: str, node: str) -> tuple[Row, bool]:
    """Return (a master's answer, whether it hears this node with its former journal); only news after the question counts."""
    asked_s = time.monotonic()
    while True:
        _, found = _survey(cluster, master, without=node)
        row = next((row for row in found["peers"] if row["node"] == node), None)
        if row is None or not row["heard"] or row["other_journal"] or node not in found["masters"]:
            return found, False
        if row["heard_s"] < time.monotonic() - asked_s:
            return found, True
        time.sleep(PAUSE_S)


class _Change:
    """One change, repeated to one master after the other until it is done."""

    def __init__(self, cluster: Cluster, kind: str, node: str, master: str, wait_s: float, *, force: bool = False) -> None:
        self._cluster = cluster
        self._kind = kind
        self._node = node
        self._master = master
        self._waiting = Waiting(wait_s)
        self._arguments: Row = {"node": node, "force": force} if kind == "remove" else {"node": node}
        self._has_changed = False

    def carry_out(self) -> Row:
        """Request the change, and wait. Raises InvalidRequest, NotReady, TimedOut, Unreachable."""
        while True:
            at, answer = self._asked(f"peer-{self._kind}", self._arguments)
            self._has_changed = self._has_changed or answer["changed"]
            if not answer["changed"] or not self._waiting.is_wanted:
                return {**answer, "changed": self._has_changed}
            if (ended := self._watch(at)) is not None:
                return {**answer, **ended, "changed": True}

    def masters(self) -> list[str]:
        """Return the masters before the change. Raises InvalidRequest, NotReady, TimedOut, Unreachable."""
        found: list[str] = self._asked("peers", {})[1]["masters"]
        return found

    def _asked(self, command: str, arguments: Row) -> tuple[str, Row]:
        """Return (the asked master, its answer); wait during a temporary refusal, or silence after a start."""
        while True:
            try:
                at, _ = _survey(self._cluster, self._master, without=self._node)
                return at, self._cluster.command(at, command, **arguments)
            except (NotReady, Unreachable, OutcomeUnknown) as error:
                # Repeating a wish does no harm.
                if not self._waiting.is_wanted or (isinstance(error, Unreachable) and not self._has_changed):
                    raise
                self._pause(str(error))

    def _watch(self, at: str) -> Row | None:
        """Wait for the end; None when this master has forgotten the change, or does not answer."""
        while True:
            try:
                found = self._cluster.command(at, "peers")
            except (Unreachable, TimedOut, NotReady):
                return None
            change = found["change"]
            if change is None or (change["kind"], change["node"]) != (self._kind, self._node):
                return None
            if change["state"] == "done":
                return {**change, "masters": found["masters"]}
            if change["state"] == "failed":
                raise NotReady(f"{self._node} was not {'added' if self._kind == 'add' else 'taken out'}: {change['stage']}")
            self._pause(change["stage"])

    def _pause(self, stage: str) -> None:
        late = f"{self._kind} {self._node} is not done yet: {stage}; say it again to go on waiting"
        self._waiting.pause(f"{self._node}: {stage}", late)


def _survey(cluster: Cluster, master: str, without: str = "") -> tuple[str, Row]:
    """Return (master to ask, its answer): one in the latest epoch that takes commands. Raises Unreachable, NotReady."""
    if master == without and master:
        raise InvalidRequest(f"{master} cannot change itself: ask another master")
    asked = [master] if master else [each for each in cluster.masters if each != without] or cluster.masters
    if master:
        cluster.at(master)
    found: dict[str, Row] = {}
    silent: dict[str, str] = {}
    for at in asked:
        try:
            found[at] = cluster.ask(at, "peers")
        except (Unreachable, TimedOut, NotReady) as error:
            silent[at] = str(error)
    willing = {at: each for at, each in found.items() if not each["refused"]} or (found if not without else {})
    if willing:
        at = max(willing, key=lambda each: (willing[each]["epoch"], willing[each]["proposer"]))
        return at, willing[at]
    if found:
        raise NotReady("; ".join(each["refused"] for each in found.values()))
    raise Unreachable("; ".join(silent.values()) or f"there is no other master than {without} to ask")


def _named(answer: Row) -> str:
    return ", ".join(each for each in answer["masters"] if each != answer["node"]) or "nobody else"


def _told(answer: Row, done: str, unchanged: str) -> Answer:
    if not answer["changed"]:
        return Answer(answer, text=unchanged)
    is_done = answer.get("state", "done") == "done"
    return Answer(answer, text=done if is_done else f"it has begun: {answer['stage']}; see brokerha peer list")


# ---- ``brokerha promote NODE``: make one process of a master its primary, by hand.


def promote(
    cluster: Cluster,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The process: id of a master, or of one of its backups.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Its own vote is enough. What only others hold is lost: use it when they do not come back."),
    ] = False,
) -> Answer:
    """Make a process the primary of its master.

    Without --force it needs the votes that every fail-over needs, so that nothing acknowledged is lost. It only begins: see status.
    """
    answer = _process(cluster, node).command("promote", {"node": node, "force": force})
    return Answer(answer, text=f"{node} was told to become primary; brokerha status shows who is")


def _process(cluster: Cluster, node: str) -> Client:
    """Return a client of the process itself, or of another process of its master; with ``--url`` of that address."""
    if (file := cluster.file) is not None:
        if file.roles.get(node) not in {"master", "backup"}:
            raise typer.BadParameter(f"{node!r} is no master and no backup of {file.path}")
        urls = file.http_urls()
        known = [urls[each] for each in (node, *file.processes_of(file.master_of(node))) if each in urls]
        if known:
            return cluster.connect(",".join(dict.fromkeys(known)))
    return cluster.client
