"""``brokerha doctor``: diagnosis of this machine, its broker and its nodes, with the commands that fix problems.

    ok       m1 data: fsync takes 1.2 ms (the middle of 20)
    problem  broker topic permissions: … - rabbitmqctl set_topic_permissions …

It changes nothing. Exit code: 0 all well, 1 warnings, 2 problems, 3 a broker cannot be reached.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.cluster import cluster_file
from brokerha.cli.common.command import Answer
from brokerha.cli.common.options import ConfigFileOption, Options
from brokerha.cli.common.output import columns
from brokerha.cli.machine.init import DEFAULT_FOLDER, program

if TYPE_CHECKING:
    from brokerha.doctor.judging import Finding
    from brokerha.nodes.config.cluster import ClusterConfig

COLUMNS = columns("level", "subject=ABOUT", "what=FOUND", "command=MENDED BY")


@dataclass(frozen=True, slots=True)
class Machine(Options):
    """The cluster file of this machine, and the files deployed beside it."""

    config: ConfigFileOption = None
    deploy: Annotated[
        Path,
        typer.Option("--deploy", metavar="DIR", help="Folder of the files that brokerha init made, if there are any."),
    ] = DEFAULT_FOLDER
    secrets: Annotated[
        Path | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="Folder with ID.url, the broker's URL for each node; secrets in the folder of --deploy, if it is there. Without either: "
            "the URL of the cluster file.",
        ),
    ] = None

    def read(self) -> tuple[ClusterConfig, Path | None]:
        """Return the cluster and the folder of the secrets. Raises ConfigurationError, typer.BadParameter."""
        beside = self.deploy / "secrets"
        return cluster_file(self.config), self.secrets or (beside if beside.is_dir() else None)


def doctor(
    machine: Machine,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Nodes of this machine; all of the file without any.")
    ] = None,
) -> Answer:
    """Check configuration, broker, clocks, disks and limits; each finding with the command that mends it.

    Changes nothing. The management interface is asked at BROKERHA_MANAGEMENT_URL, or on this machine. Exit code: 0 all well, 1 warnings,
    2 problems, 3 a broker cannot be reached.
    """
    from brokerha.doctor.judging import text

    cluster, secrets = machine.read()
    findings, is_reachable = examine(cluster, nodes or [], os.environ, machine.deploy, secrets)
    told = report(cluster.name, findings)
    lines = "\n".join(text(finding) for finding in findings)
    return Answer(told, told["findings"], COLUMNS, text=lines, code=code_of(findings, is_reachable=is_reachable))


def report(cluster: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the data of -o json."""
    from brokerha.doctor.judging import worst

    rows = [dataclasses.asdict(finding) for finding in findings]
    return {"cluster": cluster, "worst": worst(findings), "findings": rows}


def code_of(findings: Sequence[Finding], *, is_reachable: bool) -> int:
    """Return the exit code."""
    from brokerha.doctor import judging as words

    if not is_reachable:
        return exits.UNREACHABLE
    return {words.OK: exits.DONE, words.WARNING: exits.DEGRADED, words.PROBLEM: exits.FAILED}[words.worst(findings)]


def examine(
    cluster: ClusterConfig, names: Sequence[str], environ: Mapping[str, str], deploy: Path, secrets: Path | None
) -> tuple[list[Finding], bool]:
    """Return all findings, and whether each broker answered, even with a refusal. Raises ConfigurationError."""
    from brokerha.doctor import broker_facts, cluster_facts, judging, machine_facts
    from brokerha.doctor.judging import OK, Finding

    here = [cluster.node(name).id for name in names] or [node.id for node in cluster.nodes]
    secrets = secrets and secrets.absolute()
    found = [Finding(OK, "configuration", f"{cluster.path} can be read: {len(cluster.nodes)} nodes")]
    found += [judging.of_secret(file) for file in machine_facts.secret_facts(cluster, environ, secrets)]
    found += judging.of_limits(machine_facts.limits_fact())
    for node in here:
        found += judging.of_data(machine_facts.data_fact(node, cluster.data_directory(node)))
        if port := cluster_facts.port_fact(cluster, node):
            found += judging.of_port(port)
    for files in machine_facts.deployment_facts(cluster, names, deploy, program(), secrets):
        found.append(judging.of_deployment(files))
    found += judging.of_clocks(cluster_facts.clock_facts(cluster))
    found += judging.of_settings(cluster_facts.settings_facts(cluster, environ))
    is_reachable = True
    if cluster.is_embedded:
        return [*found, Finding(OK, "broker", "embedded: one process, which needs none")], True
    # Each node has its own user, but most facts of a broker are the same for all of them.
    of_brokers: dict[tuple[str, Finding], Finding] = {}
    for url, nodes in broker_facts.users_of(cluster, here, secrets).items():
        facts = broker_facts.broker_facts(cluster, url, nodes, environ)
        for fact, wanted in facts:
            of_brokers |= {(fact.where.rpartition("@")[2], each): each for each in judging.of_broker(fact, wanted)}
        is_reachable &= any(not fact.unreachable or bool(fact.refused) for fact, _ in facts)
    return [*found, *of_brokers.values()], is_reachable
