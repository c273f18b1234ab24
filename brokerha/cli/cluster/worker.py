"""``brokerha worker``: workers at run time, and manual decisions about their content.

With ``-c`` the command goes to the master of the worker. Each command announces its action and the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, Cluster, Group, columns
from brokerha.cli.common.terminal import YesOption, confirm
from brokerha.model.errors import InvalidRequest

COLUMNS = columns("id=WORKER", "master", "state", "readable", "probe", "applied_lsn=APPLIED", "fingerprint", "reason")

app = Group("Workers: list, add, remove, on, off, trust, copy, repair.")

WorkerArgument = Annotated[str, typer.Argument(metavar="WORKER", help="Id of the worker.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Do it although it takes the last worker that is in sync, or one is in sync.")
]


@app.command("list")
def list_workers(cluster: Cluster) -> Answer:
    """Show all workers as their masters see them.

    With -o json {"masters": [{master, read_only}], "workers": [{id, master, state, reason, readable, switched_on, applied_lsn,
    fingerprint, probe, alive}], "silent": [master]}. Exit code 1 when a master does not answer.
    """
    answers, silent = cluster.worker_lists()
    rows = [{"master": answer["master"], **row} for answer in answers.values() for row in answer["workers"]]
    sites = [{"master": answer["master"], "read_only": answer["read_only"]} for answer in answers.values()]
    remarks = [f"{site['master']} is read-only: {site['read_only']}" for site in sites if site["read_only"]]
    return Answer(
        {"masters": sites, "workers": rows, "silent": list(silent)}, rows, COLUMNS,
        remarks=[*remarks, *silent.values()], code=exits.DEGRADED if silent else exits.DONE,
    )  # fmt: skip


@app.command()
def add(
    cluster: Cluster,
    worker: WorkerArgument,
    master: Annotated[str, typer.Option("--master", metavar="ID", help="Its master; that of the cluster file without it.")] = "",
    unreadable: Annotated[bool, typer.Option("--unreadable", help="It follows the log and gets no reads.")] = False,
) -> Answer:
    """Add a worker to a master, or change whether it is read. It is remembered over restarts of the master.

    Start the worker first, with brokerha node WORKER --role worker --master ID: it waits until it is added, then takes the content by
    itself. A site with one worker so far takes no writes until the second one is in sync.
    """
    at = _new_home(cluster, worker, master)
    _refuse_second_home(cluster, worker, at)
    answer = cluster.command(at, "worker-add", worker=worker, readable=not unreadable)
    start = f"brokerha node {worker} --role worker --master {at} -c {cluster.config or 'cluster.toml'}"
    done = f"{worker} is a worker of {at} now; if it does not run yet: {start}"
    return _told(answer, done, f"{worker} is one already: nothing was changed")


def _new_home(cluster: Cluster, worker: str, master: str) -> str:
    """Return the master for a new worker. Raises typer.BadParameter when it is ambiguous."""
    if master:
        cluster.at(master)
        return master
    if cluster.is_worker_of_file(worker):
        return cluster.master_of(worker)
    if len(cluster.masters) == 1:
        return cluster.masters[0]
    raise typer.BadParameter(f"whose worker is it? write --master with one of {', '.join(cluster.masters)}")


def _refuse_second_home(cluster: Cluster, worker: str, at: str) -> None:
    """Refuse a second master for a worker: it would wait for the worker before writes. Raises InvalidRequest, Unreachable."""
    for other, answer in cluster.worker_lists()[0].items():
        if other != at and any(row["id"] == worker for row in answer["workers"]):
            raise InvalidRequest(f"{worker} is a worker of {other}: first brokerha worker remove {worker}, then add it to {at}")


@app.command()
def remove(cluster: Cluster, worker: WorkerArgument, force: ForceOption = False) -> Answer:
    """Remove a worker from its master: it gets nothing any more, and is not counted. Its data stays where it is."""
    try:
        at = cluster.master_of(worker)
    except InvalidRequest as error:
        return Answer({"worker": worker, "changed": False}, text=f"{error}: nothing was changed")
    answer = cluster.command(at, "worker-remove", worker=worker, force=force)
    done = f"{worker} is no worker any more; stop its process, and take it out of the cluster file if it is there"
    return _told(answer, done, f"{worker} was none already: nothing was changed")


@app.command()
def on(cluster: Cluster, worker: WorkerArgument) -> Answer:
    """Switch a worker on: it follows the log again, and is read once it is in sync."""
    answer = _command(cluster, "on", worker)
    done = f"{worker} is switched on; it catches up by itself: brokerha worker list"
    return _told(answer, done, f"{worker} is on already: nothing was changed")


@app.command()
def off(cluster: Cluster, worker: WorkerArgument, force: ForceOption = False) -> Answer:
    """Switch a worker off: it stops following and is not read. It stays off over restarts, until it is switched on."""
    at = cluster.master_of(worker)
    answer = cluster.command(at, "worker-off", worker=worker, force=force)
    read_only = answer.get("read_only")
    remarks = [f"{at} is read-only from now on: {read_only}"] if read_only else []
    done = f"{worker} is switched off; it may be stopped now. Back with: brokerha worker on {worker}"
    return _told(answer, done, f"{worker} is off already: nothing was changed", remarks)


@app.command()
def trust(cluster: Cluster, worker: WorkerArgument, force: ForceOption = False, yes: YesOption = False) -> Answer:
    """Take what a worker holds as the content of its site; the other workers of the site are replaced by copies of it.

    For a site where no copy is known to be good. Refused while another worker is in sync, unless forced.
    """
    confirm(f"the content of {worker} becomes that of its site; all other workers of the site are replaced by copies of it", yes)
    answer = _command(cluster, "trust", worker, force=force)
    return _told(answer, f"{worker} is trusted; the others are healed from it by themselves: brokerha worker list")


@app.command()
def copy(cluster: Cluster, worker: WorkerArgument) -> Answer:
    """Give a worker a new copy: it throws its own away and takes one of another worker that is in sync. The site goes on writing."""
    answer = _command(cluster, "copy", worker)
    return _told(answer, f"{worker} takes a new copy; its progress: brokerha status --watch")


@app.command()
def repair(
    cluster: Cluster,
    master: Annotated[str, typer.Argument(metavar="MASTER", help="Id of the master whose site differs.")],
    sources: Annotated[
        list[str], typer.Option("--from", metavar="WORKER", help="Worker of another site with the right content; repeatable.")
    ],
    yes: YesOption = False,
) -> Answer:
    """Give all workers of a site the content of another site: of workers there. The site serves no reads until the first has it."""
    named = ", ".join(sources)
    confirm(f"all workers of {master} throw their copies away and take the content of {named}", yes)
    answer = cluster.command(master, "worker-repair", **{"from": list(sources)})
    return _told(answer, f"{', '.join(answer['workers'])} take the content of {named}; their progress: brokerha status --watch")


def _command(cluster: Cluster, word: str, worker: str, **arguments: Any) -> dict[str, Any]:
    """Run a command at the master of a worker."""
    return cluster.command(cluster.master_of(worker), f"worker-{word}", worker=worker, **arguments)


def _told(answer: dict[str, Any], done: str, unchanged: str = "", remarks: Sequence[str] = ()) -> Answer:
    return Answer(answer, text=unchanged if unchanged and not answer.get("changed", True) else done, remarks=remarks)
