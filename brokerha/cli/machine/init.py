"""``brokerha init``: deployment files made from the cluster file, for supervisord, systemd, containers and RabbitMQ.

Thin: brokerha/deploying makes the text; this module has options, messages and exit codes. Overwrites nothing without ``--force``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import DEFAULT_CONFIG, Answer, ClusterFileOption, Group, Options
from brokerha.model.errors import ConfigurationError

if TYPE_CHECKING:
    from brokerha.deploying.files import Plan
    from brokerha.deploying.machine import Program
    from brokerha.nodes.config.cluster import ClusterConfig

app = Group("Make deployment files from the cluster file.", no_args_is_help=True)

DEFAULT_FOLDER = Path("deploy")
DEFAULT_USER = "brokerha"
DEFAULT_DAYS = 397

UserOption = Annotated[str, typer.Option("--user", metavar="NAME", help="Who the nodes run as; not root.")]
MadeSecretsOption = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="DIR",
        help="Folder of the URLs with passwords, one for each user; secrets in the folder of --deploy without it.",
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


@dataclass(frozen=True, slots=True)
class Nodes(Options):
    """The nodes of this machine, and the folder of their secrets."""

    nodes: Annotated[
        str, typer.Option("--nodes", metavar="ID,ID", help="Nodes that run on this machine; all of the file without it and --host.")
    ] = ""
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Nodes with an http address at this host run here, and those of their masters without one. Repeatable.",
        ),
    ] = None
    secrets: Annotated[
        Path | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="Folder with ID.url, the broker's URL for each node (brokerha init definitions makes it). Without it: the URL of the cluster file.",
        ),
    ] = None

    def programs(self, cluster: ClusterConfig) -> list[Program]:
        """Return the programs of this machine. Reports missing secrets: they can be at the place of deployment."""
        from brokerha.deploying import machine

        named = [each.strip() for each in self.nodes.split(",") if each.strip()]
        here = machine.nodes_here(cluster, named, self.host or ())
        folder = self.secrets and self.secrets.absolute()
        missing = [f"{node}.url" for node in here if folder and not machine.url_file(folder, node).is_file()]
        if missing:
            exits.say(f"not in {self.secrets}: {', '.join(missing)}; brokerha init definitions makes them")
        return machine.programs(cluster, here, program(), folder)


@dataclass(frozen=True, slots=True)
class Files(Options):
    """Target folder of the files, and what to do with existing ones."""

    deploy: Annotated[Path, typer.Option("--deploy", metavar="DIR", help="Folder of the files.")] = DEFAULT_FOLDER
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there with another content.")] = False
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 2 when a file is missing or out of date.")] = (
        False
    )

    def carry_out(self, plan: Plan) -> Answer:
        """Compare or write the files."""
        from brokerha.deploying import files

        found = files.compare(plan, self.deploy)
        code = exits.DONE
        if self.check:
            code = exits.DONE if files.statuses(found) <= {files.SAME} else exits.FAILED
        elif self.force or files.DIFFERS not in files.statuses(found):
            files.write(plan, self.deploy, force=self.force)
        else:
            code = exits.FAILED
        is_written = not self.check and code == exits.DONE
        rows = [
            {"path": str(each.path), "found": each.status, "written": is_written and each.status != files.SAME} for each in found
        ]
        steps = list(plan.next_steps) if is_written else []
        lines = [f"{'written' if row['written'] else row['found']:<10} {row['path']}" for row in rows]
        lines += ["", "next:", *(f"  {step}" for step in steps)] if is_written else []
        hint = "nothing written: files are there with another content; --force overwrites them, --check only compares"
        if self.check:
            hint = "out of date: make them again without --check (--force overwrites)"
        told = {"files": rows, "up_to_date": code == exits.DONE, "next": steps}
        return Answer(told, rows, text="\n".join(lines), code=code, hints=[hint] if code else [])


@app.command()
def supervisord(files: Files, nodes: Nodes, config: ClusterFileOption = DEFAULT_CONFIG, user: UserOption = DEFAULT_USER) -> Answer:
    """Configuration of supervisord for the nodes of one machine.

    It survives a broker that is away for hours, stops nodes in order, starts them again after kill -9, and keeps logs bounded.
    """
    from brokerha.deploying.machine import supervisord_plan

    cluster = _cluster(config)
    programs = nodes.programs(cluster)
    plan = supervisord_plan(cluster.name, programs, _unprivileged(user), files.deploy, config.absolute().parent)
    return files.carry_out(plan)


@app.command()
def systemd(files: Files, nodes: Nodes, config: ClusterFileOption = DEFAULT_CONFIG, user: UserOption = DEFAULT_USER) -> Answer:
    """Units for systemd: one for each node of one machine, and a target for all of them."""
    from brokerha.deploying.machine import systemd_plan, writable_folders

    cluster = _cluster(config)
    programs = nodes.programs(cluster)
    folder, writable = config.absolute().parent, writable_folders(cluster)
    return files.carry_out(systemd_plan(cluster.name, programs, _unprivileged(user), files.deploy, folder, writable))


@app.command()
def compose(
    files: Files, config: ClusterFileOption = DEFAULT_CONFIG, secrets: MadeSecretsOption = None, app_: AppOption = None
) -> Answer:
    """Containers for all nodes and their brokers: compose.yaml, rabbitmq.conf, definitions and secrets.

    The host name in a broker's URL becomes the name of its service: write amqp://rabbitmq/NAME.
    """
    from brokerha.deploying.compose import compose_plan
    from brokerha.deploying.files import Plan

    cluster = _cluster(config)
    folder = secrets or files.deploy / "secrets"
    of_broker = _definitions(cluster, app_, files.deploy, folder)
    of_containers = compose_plan(cluster, files.deploy, folder)
    return files.carry_out(Plan((*of_containers.files, *of_broker.files), next_steps=of_containers.next_steps))


@app.command()
def definitions(
    files: Files, config: ClusterFileOption = DEFAULT_CONFIG, secrets: MadeSecretsOption = None, app_: AppOption = None
) -> Answer:
    """Definitions for RabbitMQ: users with the least rights for each node and app, queues, policies, limits.

    Passwords come from BROKERHA_PASSWORD_<NAME> or BROKERHA_PASSWORD_<NAME>_FILE, else from the secrets that are there, else they
    are drawn and written there, readable by you alone.
    """
    return files.carry_out(_definitions(_cluster(config), app_, files.deploy, secrets or files.deploy / "secrets"))


@app.command()
def certificates(
    files: Files,
    config: ClusterFileOption = DEFAULT_CONFIG,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="ID=HOST,HOST",
            help="Names and addresses by which clients reach a node, beside its http address; an ID that is no node gets a certificate too, such as the broker. Repeatable.",
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, metavar="DAYS", help="How long those of servers are good.")
    ] = DEFAULT_DAYS,
) -> Answer:
    """Certificates for the HTTP doors: from an authority of the cluster's own, TLS without an external authority.

    They go where http-certificate and http-key of the cluster file say, the others and the authority to DIR/tls. A certificate with
    more than a third of its time left stays; --check exits with 2 when one has to be made.
    """
    try:
        from brokerha.deploying.certificates import certificates_plan, parse_names, servers_of
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"certificates need the package {error.name}: pip install 'brokerha[certificates]'") from None

    cluster = _cluster(config)
    folder = (files.deploy / "tls").absolute()
    servers = servers_of(cluster, parse_names(name or ()), folder)
    steps = []
    if not (cluster.http_certificate and cluster.http_key):
        there = os.path.relpath(folder, config.absolute().parent)
        steps.append(
            f'write into {config}: http-certificate = "{there}/{{id}}.pem", http-key = "{there}/{{id}}.key", and http-users (brokerha user add)'
        )
    return files.carry_out(certificates_plan(cluster.name, servers, folder, datetime.now(UTC), days, steps))


def _definitions(cluster: ClusterConfig, apps: list[str] | None, deploy: Path, folder: Path) -> Plan:
    from brokerha.deploying.broker import definitions_plan, parse_apps

    return definitions_plan(cluster, parse_apps(apps or (), cluster), os.environ, deploy, folder.absolute())


def _cluster(path: Path) -> ClusterConfig:
    from brokerha.nodes.config.cluster import load_config

    return load_config(path, os.environ)


def program() -> tuple[str, ...]:
    """Return the command for brokerha, for any user and folder: with the Python that runs this program."""
    return (sys.executable, "-m", "brokerha")


def _unprivileged(user: str) -> str:
    if user in {"root", "0", ""}:
        raise typer.BadParameter(f"{user!r}: a node needs no rights: name a user that owns its data folder, such as {DEFAULT_USER}")
    return user
