"""``brokerha settings``: settings of the cluster file that can be changed while the cluster runs, for all nodes.

Any master takes a change; it goes through the log like every transaction.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, Group, Row, columns
from brokerha.model.errors import InvalidRequest
from brokerha.model.reserved.settings import name_problem

COLUMNS = columns("name=SETTING", "value", "takes", "counts", "set_by", "when", "from")
LIVE, RESTART = "at once", "from the next start"

app = Group("Settings of the running cluster: list, get, set, unset.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in the section [cluster] of the cluster file.")]
ValueArgument = Annotated[
    str, typer.Argument(metavar="VALUE", help="In the unit of the setting, which its name ends in; as in the file, without quotes.")
]


@app.command("list")
def list_settings(
    cluster: Cluster, changed: Annotated[bool, typer.Option("--changed", help="Only those that were set.")] = False
) -> Answer:
    """Show all settings that can be changed while the cluster runs.

    A change counts at once, or from the next start of each node. With -o json {master, lsn, problem, settings: [{name, value, source: file or
    cluster, file, in_force, live, takes, by, at, from}]}: as the master sees it that answers; file is what its cluster file says, in_force what
    counts in it now, at in microseconds; by, at and from are null of what was never set. Exit code 1 when what was set contradicts its file.
    """
    answer = cluster.client.command("settings", {})
    if changed:
        answer = {**answer, "settings": [row for row in answer["settings"] if row["at"] is not None]}
    rows = answer["settings"]
    return _answer(answer, rows, shown=[_shown(row) for row in rows])


@app.command()
def get(cluster: Cluster, name: NameArgument) -> Answer:
    """Show the value of a setting.

    With -o json {master, lsn, problem, setting}, as settings list has it.
    """
    answer = cluster.client.command("settings", {})
    found = [row for row in answer.pop("settings") if row["name"] == name]
    if not found:
        raise InvalidRequest(name_problem(name))
    return _answer({**answer, "setting": found[0]}, found, text=found[0]["value"])


@app.command("set")
def set_(cluster: Cluster, name: NameArgument, value: ValueArgument) -> Answer:
    """Set a setting, for all nodes of the cluster.

    It overrides the cluster files, and is kept over restarts, backups and splits, with who set it, when, and from where. With -o json
    {master, lsn, problem, set_lsn, setting}: set_lsn is the place of the change in the order.
    """
    return _changed(cluster, "setting-set", {"name": name, "value": value})


@app.command()
def unset(cluster: Cluster, name: NameArgument) -> Answer:
    """Take a setting back: the cluster files count again.

    With -o json {master, lsn, problem, set_lsn, setting}.
    """
    return _changed(cluster, "setting-unset", {"name": name})


def _changed(cluster: Cluster, command: str, arguments: dict[str, str]) -> Answer:
    answer = cluster.client.command(command, arguments)
    row = answer["setting"]
    source = "" if row["source"] == "cluster" else ", as the cluster file says"
    counts = LIVE if row["live"] else f"{RESTART} of each node"
    text = f"{row['name']} = {row['value']}{source}: counts {counts} (LSN {answer['set_lsn']})"
    return _answer(answer, [row], text=text)


def _answer(answer: Row, rows: list[Row], **shown: Any) -> Answer:
    if not answer["problem"]:
        return Answer(answer, rows, COLUMNS, **shown)
    remark = f"not in force at {answer['master']}, as its cluster file says something else: {answer['problem']}"
    return Answer(answer, rows, COLUMNS, remarks=[remark], code=exits.DEGRADED, **shown)


def _shown(row: Row) -> Row:
    counts = LIVE if row["live"] else RESTART
    if row["value"] != row["in_force"]:
        counts += f" (now {row['in_force']})"
    is_taken_back = row["at"] is not None and row["source"] == "file"
    when = None if row["at"] is None else output.time_text(row["at"])[:19]
    return {**row, "counts": counts, "when": when, "set_by": f"{row['by']} (taken back)".strip() if is_taken_back else row["by"]}
