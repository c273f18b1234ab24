"""``brokerha settings``: what of the cluster file is changed while the cluster runs, for all nodes.

settings list      all of them: value, whether a change counts at once, who set it, when, from where
settings get       one value
settings set       another value, from now on; kept over restarts
settings unset     back to what the cluster files say

Any master takes a change; it goes through the order like every transaction.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.access import connected
from brokerha.cli.common.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.common.output import Format

COLUMNS = {
    "name": "SETTING",
    "value": "VALUE",
    "takes": "TAKES",
    "counts": "COUNTS",
    "by": "SET BY",
    "when": "WHEN",
    "from": "FROM",
}
LIVE, RESTART = "at once", "from the next start"

app = typer.Typer(
    help="Settings of the running cluster: list, get, set, unset.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in the section [cluster] of the cluster file.")]


@app.command("list")
def list_settings(
    changed: Annotated[bool, typer.Option("--changed", help="Only those that were set.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show all settings that can be changed while the cluster runs.

    A change counts at once, or from the next start of each node. With -o json {master, lsn, problem, settings: [{name, value, source: file or
    cluster, file, in_force, live, takes, by, at, from}]}: as the master sees it that answers; file is what its cluster file says, in_force what
    counts in it now, at in microseconds; by, at and from are null of what was never set. Exit code 1 when what was set contradicts its file.
    """
    with connected(config, url) as client:
        answer = client.command("settings", {}, timeout=timeout_s)
    if changed:
        answer["settings"] = [each for each in answer["settings"] if each["at"] is not None]
    rows = answer["settings"]
    output.write(answer, [_shown(row) for row in rows] if chosen is Format.TABLE else rows, chosen, COLUMNS)
    return _problem(answer)


@app.command()
def get(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show the value of a setting.

    With -o json {master, lsn, problem, setting}, as settings list has it.
    """
    with connected(config, url) as client:
        answer = client.command("settings", {}, timeout=timeout_s)
    known = {row["name"]: row for row in answer.pop("settings")}
    if name not in known:
        from brokerha.model.settings import name_problem

        raise typer.BadParameter(name_problem(name))
    _write({**answer, "setting": known[name]}, chosen, known[name]["value"])
    return _problem(answer)


@app.command("set")
def set_(
    name: NameArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="In the unit of the setting, which its name ends in; as in the file, without quotes.")],
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Set a setting, for all nodes of the cluster.

    It goes before what the cluster files say, and is kept over restarts, backups and splits, with who set it, when, and from where. With -o json
    {master, lsn, problem, set_lsn, setting}: set_lsn is the place of the change in the order.
    """
    return _change("setting-set", {"name": name, "value": value}, config, url, timeout_s, chosen)


@app.command()
def unset(
    name: NameArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Take a setting back: what the cluster files say counts again.

    With -o json {master, lsn, problem, set_lsn, setting}.
    """
    return _change("setting-unset", {"name": name}, config, url, timeout_s, chosen)


def _change(command: str, arguments: dict[str, Any], config: Any, url: str | None, timeout_s: float, chosen: Format) -> int:
    with connected(config, url) as client:
        answer = client.command(command, arguments, timeout=timeout_s)
    row = answer["setting"]
    source = "" if row["source"] == "cluster" else ", as the cluster file says"
    counts = LIVE if row["live"] else f"{RESTART} of each node"
    _write(answer, chosen, f"{row['name']} = {row['value']}{source}: counts {counts} (LSN {answer['set_lsn']})")
    return _problem(answer)


def _write(answer: dict[str, Any], chosen: Format, text: str) -> None:
    if chosen is Format.TABLE:
        print(text)
    else:
        output.write(answer, [answer["setting"]], chosen, {})


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    counts = LIVE if row["live"] else RESTART
    if row["value"] != row["in_force"]:
        counts += f" (now {row['in_force']})"
    when = None if row["at"] is None else output.time_text(row["at"])[:19]
    return {**row, "counts": counts, "when": when, "by": row["by"] if row["source"] == "cluster" or not row["at"] else f"taken back: {row['by']}"}


def _problem(answer: dict[str, Any]) -> int:
    if not answer["problem"]:
        return exits.DONE
    exits.say(f"not in force at {answer['master']}, as its cluster file says something else: {answer['problem']}")
    return exits.DEGRADED
