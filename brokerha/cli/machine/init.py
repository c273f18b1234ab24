"""``brokerha init``: deployment files made from the cluster file, for supervisord, systemd, containers and RabbitMQ.

Thin: brokerha/deploying makes the text; here are options, what is said, and exit codes. Nothing is overwritten without ``--force``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.options import DEFAULT_CONFIG, ClusterFileOption

if TYPE_CHECKING:
    from brokerha.deploying.files import Plan
    from brokerha.deploying.machine import Program
    from brokerha.nodes.config.cluster import ClusterConfig

app = typer.Typer(
    help="Make deployment files from the cluster file.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

DEFAULT_FOLDER = Path("deploy")
DEFAULT_USER = "brokerha"

OutputOption = Annotated[Path, typer.Option("--output", metavar="DIR", help="Folder of the files.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that are there with another content.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Write nothing; exit code 2 when a file is missing or out of date.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Say it as JSON.")]
NodesOption = Annotated[
    str,
    typer.Option(
        "--nodes", metavar="ID,ID", help="Nodes that run on this machine; all of the file without it and --host."
    ),
]
HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Nodes with an http address at this host run here, and those of their masters without one. Repeatable.",
    ),
]
UserOption = Annotated[str, typer.Option("--user", metavar="NAME", help="Who the nodes run as; not root.")]
SecretsOption = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="DIR",
        help="Folder with ID.url, the broker's URL for each node (brokerha init definitions makes it). Without it: the URL of the cluster file.",
    ),
]
MadeSecretsOption = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="DIR",
        help="Folder of the URLs with passwords, one for each user; DIR/secrets of the output without it.",
    ),
]
AppOption = Annotated[
    list[str] | None,
    typer.Option(
        "--app",
        metavar="NAME=ROLE+ROLE",
        help="A user for an app; roles are write, follow, monitor, admin. Repeatable. Without it: app=write, follower=follow, monitor=monitor, admin=admin.",
    ),
]


@app.command()
def supervisord(
    config: ClusterFileOption = DEFAULT_CONFIG,
    output: OutputOption = DEFAULT_FOLDER,
    nodes: NodesOption = "",
    host: HostOption = None,
    user: UserOption = DEFAULT_USER,
    secrets: SecretsOption = None,
    force: ForceOption = False,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> int:
    """Configuration of supervisord for the nodes of one machine.

    It survives a broker that is away for hours, stops nodes in order, starts them again after kill -9, and keeps logs bounded.
    """
    from brokerha.deploying import supervisord as maker

    cluster = _cluster(config)
    programs = _programs(cluster, nodes, host, secrets)
    plan = maker.plan(cluster.name, programs, _unprivileged(user), output, config.absolute().parent)
    return _carry_out(plan, output, force=force, check=check, as_json=as_json)


@app.command()
def systemd(
    config: ClusterFileOption = DEFAULT_CONFIG,
    output: OutputOption = DEFAULT_FOLDER,
    nodes: NodesOption = "",
    host: HostOption = None,
    user: UserOption = DEFAULT_USER,
    secrets: SecretsOption = None,
    force: ForceOption = False,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> int:
    """Units for systemd: one for each node of one machine, and a target for all of them."""
    from brokerha.deploying import systemd as maker
    from brokerha.deploying.machine import writable_folders

    cluster = _cluster(config)
    programs = _programs(cluster, nodes, host, secrets)
    writable = writable_folders(cluster)
    plan = maker.plan(cluster.name, programs, _unprivileged(user), output, config.absolute().parent, writable)
    return _carry_out(plan, output, force=force, check=check, as_json=as_json)


@app.command()
def compose(
    config: ClusterFileOption = DEFAULT_CONFIG,
    output: OutputOption = DEFAULT_FOLDER,
    secrets: MadeSecretsOption = None,
    app_: AppOption = None,
    force: ForceOption = False,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> int:
    """Containers for all nodes and their brokers: compose.yaml, rabbitmq.conf, definitions and secrets.

    The host name in a broker's URL becomes the name of its service: write amqp://rabbitmq/NAME.
    """
    from brokerha.deploying.accounts import parse_apps
    from brokerha.deploying.broker import definitions_plan
    from brokerha.deploying.compose import compose_plan
    from brokerha.deploying.files import Plan

    cluster = _cluster(config)
    folder = secrets or output / "secrets"
    of_broker = definitions_plan(cluster, parse_apps(app_ or (), cluster), os.environ, output, folder.absolute())
    of_containers = compose_plan(cluster, output, folder)
    plan = Plan((*of_containers.files, *of_broker.files), next_steps=of_containers.next_steps)
    return _carry_out(plan, output, force=force, check=check, as_json=as_json)


@app.command()
def definitions(
    config: ClusterFileOption = DEFAULT_CONFIG,
    output: OutputOption = DEFAULT_FOLDER,
    secrets: MadeSecretsOption = None,
    app_: AppOption = None,
    force: ForceOption = False,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> int:
    """Definitions for RabbitMQ: users with the least rights for each node and app, queues, policies, limits.

    Passwords come from BROKERHA_PASSWORD_<NAME> or BROKERHA_PASSWORD_<NAME>_FILE, else from the secrets that are there, else they
    are drawn and written there, readable by you alone.
    """
    from brokerha.deploying.accounts import parse_apps
    from brokerha.deploying.broker import definitions_plan

    cluster = _cluster(config)
    folder = secrets or output / "secrets"
    plan = definitions_plan(cluster, parse_apps(app_ or (), cluster), os.environ, output, folder.absolute())
    return _carry_out(plan, output, force=force, check=check, as_json=as_json)


def _cluster(path: Path) -> ClusterConfig:
    from brokerha.nodes.config.cluster import load_config

    return load_config(path, os.environ)


def _programs(cluster: ClusterConfig, nodes: str, hosts: list[str] | None, secrets: Path | None) -> list[Program]:
    """The programs of this machine. Says which secrets are not here: they may be where the files go."""
    from brokerha.deploying import machine

    here = machine.nodes_here(cluster, _names(nodes), hosts or ())
    folder = secrets and secrets.absolute()
    missing = [node for node in here if folder and not machine.url_file(folder, node).is_file()]
    if missing:
        exits.say(
            f"not in {secrets}: {', '.join(f'{node}.url' for node in missing)}; brokerha init definitions makes them"
        )
    return machine.programs(cluster, here, program(), folder)


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def program() -> tuple[str, ...]:
    """What runs brokerha, whoever starts it from wherever: the Python that runs us."""
    return (sys.executable, "-m", "brokerha")


def _unprivileged(user: str) -> str:
    if user in {"root", "0", ""}:
        raise typer.BadParameter(
            f"{user!r}: a node needs no rights: name a user that owns its data folder, such as {DEFAULT_USER}"
        )
    return user


def _carry_out(plan: Plan, folder: Path, *, force: bool, check: bool, as_json: bool) -> int:
    """Compare or write, and say so."""
    from brokerha.deploying import files

    found = files.compare(plan, folder)
    code = exits.DONE
    if check:
        code = exits.DONE if files.statuses(found) <= {files.SAME} else exits.FAILED
    elif force or files.DIFFERS not in files.statuses(found):
        files.write(plan, folder, force=force)
    else:
        code = exits.FAILED
    is_written = not check and code == exits.DONE
    if as_json:
        rows = [
            {"path": str(each.path), "found": each.status, "written": is_written and each.status != files.SAME}
            for each in found
        ]
        steps = list(plan.next_steps) if is_written else []
        print(
            json.dumps(
                {"files": rows, "up_to_date": is_written or code == exits.DONE, "next": steps}, ensure_ascii=False
            )
        )
        return code
    for each in found:
        word = "written" if is_written and each.status != files.SAME else each.status
        print(f"{word:<10} {each.path}")
    if is_written:
        print("\nnext:\n" + "\n".join(f"  {step}" for step in plan.next_steps))
    elif code and check:
        exits.say("out of date: make them again without --check (--force overwrites)")
    elif code:
        exits.say(
            "nothing written: files are there with another content; --force overwrites them, --check only compares"
        )
    return code
