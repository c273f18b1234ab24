"""``brokerha worker``: workers at run time, and what a person decides about their content.

list              all workers, with their state and what holds them up
add, remove       take a worker in, or let it go
on, off           have it follow the log, or stop
trust             its content is right: the others of its site are healed from it
copy              throw its copy away and take one of another worker
repair            a whole site takes the content of workers of another site

With ``-c`` the command goes to the master of the worker. Each says what it does before it does it, and what comes next.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.masters import Masters, masters
from brokerha.cli.common.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.common.output import Format

COLUMNS = {
    "id": "WORKER",
    "master": "MASTER",
    "state": "STATE",
    "readable": "READABLE",
    "probe": "PROBE",
    "applied_lsn": "APPLIED",
    "fingerprint": "FINGERPRINT",
    "reason": "REASON",
}

app = typer.Typer(
    help="Workers: list, add, remove, on, off, trust, copy, repair.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Id of the worker.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Do it although it takes the last worker that is in sync, or one is in sync.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask again on a terminal.")]


@app.command("list")
def list_workers(
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show all workers as their masters see them.

    With -o json {"masters": [{master, read_only}], "workers": [{id, master, state, reason, readable, switched_on, applied_lsn,
    fingerprint, probe, alive}], "silent": [master]}. Exit code 1 when a master does not answer.
    """
    with masters(config, url, timeout_s) as cluster:
        answers, silent = cluster.lists()
    rows = [{"master": answer["master"], **row} for answer in answers.values() for row in answer["workers"]]
    sites = [{"master": answer["master"], "read_only": answer["read_only"]} for answer in answers.values()]
    output.write({"masters": sites, "workers": rows, "silent": list(silent)}, rows, chosen, COLUMNS)
    for site in sites:
        if site["read_only"]:
            exits.say(f"{site['master']} is read-only: {site['read_only']}")
    for reason in silent.values():
        exits.say(reason)
    return exits.DEGRADED if silent else exits.DONE


@app.command()
def add(
    worker: WorkerArgument,
    master: Annotated[
        str, typer.Option("--master", metavar="ID", help="Its master; that of the cluster file without it.")
    ] = "",
    unreadable: Annotated[bool, typer.Option("--unreadable", help="It follows the log and gets no reads.")] = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Add a worker to a master, or change whether it is read. It is remembered over restarts of the master.

    Start the worker first, with brokerha node WORKER --role worker --master ID: it waits until it is added, then takes the content by
    itself. A site with one worker so far takes no writes until the second one is in sync.
    """
    with masters(config, url, timeout_s) as cluster:
        at = _new_home(cluster, worker, master)
        answer = cluster.command(at, "worker-add", worker=worker, readable=not unreadable)
    start = f"brokerha node {worker} --role worker --master {at} -c {config or 'cluster.toml'}"
    done = f"{worker} is a worker of {at} now; if it does not run yet: {start}"
    return _tell(answer, chosen, done, f"{worker} is one already: nothing was changed")


def _new_home(cluster: Masters, worker: str, master: str) -> str:
    """Where a worker is to be added. Raises typer.BadParameter when nothing says it."""
    if master:
        cluster.client(master)
        return master
    if cluster.is_worker_of_file(worker):
        return cluster.master_of(worker)
    if len(cluster.ids) == 1:
        return cluster.ids[0]
    raise typer.BadParameter(f"whose worker is it? write --master with one of {', '.join(cluster.ids)}")


@app.command()
def remove(
    worker: WorkerArgument,
    force: ForceOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Remove a worker from its master: it gets nothing any more, and is not counted. Its data stays where it is."""
    done = f"{worker} is no worker any more; stop its process, and take it out of the cluster file if it is there"
    again = f"{worker} was none already: nothing was changed"
    return _command("worker-remove", worker, force, (config, url, timeout_s), chosen, (done, again))


@app.command()
def on(
    worker: WorkerArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Switch a worker on: it follows the log again, and is read once it is in sync."""
    done = f"{worker} is switched on; it catches up by itself: brokerha worker list"
    again = f"{worker} is on already: nothing was changed"
    return _command("worker-on", worker, None, (config, url, timeout_s), chosen, (done, again))


@app.command()
def off(
    worker: WorkerArgument,
    force: ForceOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Switch a worker off: it stops following and is not read. It stays off over restarts, until it is switched on."""
    done = f"{worker} is switched off; it may be stopped now. Back with: brokerha worker on {worker}"
    again = f"{worker} is off already: nothing was changed"
    return _command("worker-off", worker, force, (config, url, timeout_s), chosen, (done, again))


@app.command()
def trust(
    worker: WorkerArgument,
    force: ForceOption = False,
    yes: YesOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Take what a worker holds as the content of its site; the other workers of the site are replaced by copies of it.

    For a site where no copy is known to be good. Refused while another worker is in sync, unless forced.
    """
    _confirm(f"the content of {worker} becomes that of its site; all other workers of the site are replaced by copies of it", yes)
    done = f"{worker} is trusted; the others are healed from it by themselves: brokerha worker list"
    return _command("worker-trust", worker, force, (config, url, timeout_s), chosen, (done, done))


@app.command()
def copy(
    worker: WorkerArgument,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Have a worker throw its copy away and take one of another worker that is in sync. The site goes on writing."""
    done = f"{worker} takes a new copy; its progress: brokerha status --watch"
    return _command("worker-copy", worker, None, (config, url, timeout_s), chosen, (done, done))


@app.command()
def repair(
    master: Annotated[str, typer.Argument(metavar="MASTER", help="Id of the master whose site differs.")],
    sources: Annotated[
        list[str], typer.Option("--from", metavar="WORKER", help="Worker of another site with the right content; repeatable.")
    ],
    yes: YesOption = False,
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Have all workers of a site take the content of workers of another site. The site serves no reads until the first has it."""
    named = ", ".join(sources)
    _confirm(f"all workers of {master} throw their copies away and take the content of {named}", yes)
    with masters(config, url, timeout_s) as cluster:
        answer = cluster.command(master, "worker-repair", **{"from": list(sources)})
    done = f"{', '.join(answer['workers'])} take the content of {named}; their progress: brokerha status --watch"
    return _tell(answer, chosen, done, done)


def _command(
    name: str,
    worker: str,
    force: bool | None,
    where: tuple[Path | None, str | None, float],
    chosen: Format,
    told: tuple[str, str],
) -> int:
    """Have the master of a worker carry out a command; ``told`` is what to say when it changed something, and when not."""
    with masters(*where) as cluster:
        more = {} if force is None else {"force": force}
        answer = cluster.command(cluster.master_of(worker), name, worker=worker, **more)
    return _tell(answer, chosen, *told)


def _tell(answer: dict[str, Any], chosen: Format, done: str, unchanged: str) -> int:
    if chosen is Format.TABLE:
        print(done if answer.get("changed", True) else unchanged)
    else:
        output.write(answer, [answer], chosen, {})
    return exits.DONE


def _confirm(plan: str, is_sure: bool) -> None:
    """Say what is going to happen; a person at a terminal is asked. Raises typer.Abort."""
    exits.say(plan)
    if not is_sure and sys.stdin.isatty():
        typer.confirm("Go on?", abort=True, err=True)
