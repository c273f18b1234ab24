"""``brokerha doctor``: diagnosis of this machine, its broker and its nodes, with the commands that fix problems.

    ok       m1 data: fsync takes 1.2 ms (the middle of 20)
    problem  broker topic permissions: … - rabbitmqctl set_topic_permissions …

It changes nothing. Exit code: 0 all well, 1 warnings, 2 problems, 3 a broker cannot be reached.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, Cluster, ConfigFileOption, Options, cluster_file, columns, master_urls
from brokerha.cli.machine.init import DEFAULT_FOLDER, program
from brokerha.model import VERSION
from brokerha.model.errors import BrokerhaError, ConfigurationError

if TYPE_CHECKING:
    from brokerha.doctor.bundle import Bundle
    from brokerha.doctor.judging import Finding
    from brokerha.nodes.config.cluster import ClusterConfig


COLUMNS = columns("level", "subject=ABOUT", "what=FOUND", "command=MENDED BY")


@dataclass(frozen=True, slots=True)
class Machine(Options):
    """The cluster file of this machine, and the files deployed beside it."""

    config: ConfigFileOption = None
    deploy: Annotated[
        Path, typer.Option("--deploy", metavar="DIR", help="Folder of the files that brokerha init made, if there are any.")
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
    from brokerha.doctor import cluster_facts, judging, machine_facts
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
    found += judging.of_workers(cluster_facts.workers_facts(cluster, environ))
    is_reachable = True
    if cluster.is_embedded:
        return [*found, Finding(OK, "broker", "embedded: one process, which needs none")], True
    # Each node has its own user, but most facts of a broker are the same for all of them.
    of_brokers: dict[tuple[str, Finding], Finding] = {}
    for url, nodes in cluster_facts.users_of(cluster, here, secrets).items():
        facts = cluster_facts.broker_facts(cluster, url, nodes, environ)
        for fact, wanted in facts:
            of_brokers |= {(fact.where.rpartition("@")[2], each): each for each in judging.of_broker(fact, wanted)}
        is_reachable &= any(not fact.unreachable or bool(fact.refused) for fact, _ in facts)
    return [*found, *of_brokers.values()], is_reachable


# ---- ``brokerha support-bundle``: one file for support, with configuration, status, metrics, logs, findings; no secrets or user data.
#
# manifest.json        versions, and every file with its size
# cluster.toml         without secrets
# environment.txt      names of variables, without values
# doctor.json          what brokerha doctor finds
# status.json          the status of all nodes
# nodes/ID/metrics.txt, readyz.txt
# nodes/ID/files.json  names and sizes of the files in its data directory
# logs/NAME.log        last lines

DEFAULT_LINES = 5_000
DEFAULT_MEGABYTES = 20
MOST_FILES = 5_000
_JOURNAL_WITHIN_S = 30
_STATUS_WITHIN_S = 5.0
_LOG_OF_PROGRAM = re.compile(r"^(?:stdout_|stderr_)?logfile\s*=\s*(\S.*?)\s*$", re.MULTILINE)


def support_bundle(
    machine: Machine,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="The file; brokerha-NAME-TIME.tar.gz without it.")
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--logs", metavar="DIR", help="Folder whose *.log files are taken too. Repeatable.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", min=0, metavar="N", help="Last lines of each log.")] = DEFAULT_LINES,
    megabytes: Annotated[
        int, typer.Option("--max-mb", min=1, max=1000, metavar="MB", help="Most of all files together.")
    ] = DEFAULT_MEGABYTES,
) -> Answer:
    """Gather what helps to understand a cluster into one file: no secrets, no data of users.

    The logs are those that the files of brokerha init name. Nodes that do not answer are left out; look into the file before giving it away.
    """
    from brokerha.doctor.bundle import Bundle, Redactor

    cluster, folder = machine.read()
    bundle = Bundle(Redactor(known_secrets(cluster, folder)), megabytes * 1_000_000)
    bundle.add("cluster.toml", cluster.path.read_text(encoding="utf-8"))
    bundle.add("environment.txt", "".join(f"{name}\n" for name in sorted(os.environ)))
    findings, _ = examine(cluster, [], os.environ, machine.deploy, folder)
    bundle.add_json("doctor.json", report(cluster.name, findings))
    silent = _nodes(bundle, cluster)
    for name, text in log_texts(cluster, machine.deploy, logs or [], lines):
        bundle.add(f"logs/{name}", text, keep_end=True)
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    path = file or Path(f"brokerha-{cluster.name}-{stamp}.tar.gz")
    try:
        size = bundle.write(path, now, {"made": stamp, "cluster": cluster.name, **versions()})
    except FileExistsError:
        raise ConfigurationError(f"{path} is there already: name another one with --file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}: name another file with --file") from None
    files = len(bundle.rows) + 1
    return Answer(
        {"file": str(path), "bytes": size, "files": files, "silent": silent},
        text=f"{path}: {size:,} bytes, {files} files",
        remarks=[f"did not answer, and are not in it: {', '.join(silent)}"] if silent else [],
        code=exits.DEGRADED if silent else exits.DONE,
    )


def known_secrets(cluster: ClusterConfig, folder: Path | None) -> set[str]:
    """Return all secrets that this machine knows, to remove them everywhere."""
    from brokerha.doctor import bundle, machine_facts

    found = bundle.secrets_of_environment(os.environ)
    for url in {cluster.broker, *(cluster.broker_of(node.id) for node in cluster.nodes)}:
        found |= bundle.secrets_of_url(url)
    for fact in machine_facts.secret_facts(cluster, os.environ, folder):
        path = Path(fact.path)
        if path == cluster.path:
            continue
        try:
            found |= bundle.secrets_of_file(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return found


def versions() -> dict[str, Any]:
    """Return the versions of brokerha, Python, the machine, and installed packages."""
    from importlib.metadata import distributions

    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "brokerha": VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }


def _nodes(bundle: Bundle, cluster: ClusterConfig) -> list[str]:
    """Add the answers of each node; return the nodes with an address that did not answer."""
    from brokerha.doctor import cluster_facts

    status = _status(cluster)
    bundle.add_json("status.json", status)
    if "error" not in status:
        bundle.add_json("journals.json", _journals(cluster))
    silent = []
    urls = cluster.http_urls()
    for node in cluster.nodes:
        if (data := cluster.data_directory(node.id)).is_dir():
            bundle.add_json(f"nodes/{node.id}/files.json", list(_files(data)))
        if node.id not in urls:
            continue
        for path in ("metrics", "readyz"):
            told = cluster_facts.text_of(cluster, node.id, path, os.environ)
            if told is None:
                silent.append(node.id)
                break
            bundle.add(f"nodes/{node.id}/{path}.txt", told)
    return silent


def _status(cluster: ClusterConfig) -> dict[str, Any]:
    import brokerha

    urls = ",".join(master_urls(cluster).values())
    if not urls:
        return {"error": "no master has an http address"}
    try:
        with brokerha.connect(urls) as client:
            return dict(client.status(timeout=_STATUS_WITHIN_S))
    except BrokerhaError as error:
        return {"error": str(error)}


def _journals(cluster: ClusterConfig) -> dict[str, Any]:
    """Return the range of each master's journal, and its pins."""
    found: dict[str, Any] = {}
    with Cluster(cluster.path, timeout_s=_STATUS_WITHIN_S) as sites:
        for master in sites.masters:
            try:
                found[master] = sites.command(master, "pins")
            except BrokerhaError as error:
                found[master] = {"error": str(error)}
    return found


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield names and sizes of files; their content belongs to the users."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number >= MOST_FILES:
            break
        try:
            about = path.lstat()
        except OSError:
            continue
        yield {"name": str(path.relative_to(folder)), "bytes": about.st_size, "mode": oct(about.st_mode)}


def log_texts(cluster: ClusterConfig, deploy: Path, folders: list[Path], lines: int) -> Iterator[tuple[str, str]]:
    """Yield name and last lines of each log: from supervisord's files, systemd's units, and the folders."""
    from brokerha.doctor.bundle import last_lines

    found: dict[Path, None] = {}
    for configuration in sorted(deploy.glob("*.conf")):
        for named in _LOG_OF_PROGRAM.findall(configuration.read_text(encoding="utf-8", errors="replace")):
            found[Path(named.replace("%(here)s", str(deploy.absolute())).replace("%%", "%"))] = None
    for folder in folders:
        found |= dict.fromkeys(sorted(folder.glob("*.log")))
    taken: set[str] = set()
    for path in found:
        if path.is_file():
            name = path.name if path.name not in taken else f"{len(taken)}-{path.name}"
            taken.add(name)
            yield name, last_lines(path, lines)
    if any(deploy.glob(f"brokerha-{cluster.name}-*.service")) and (program := shutil.which("journalctl")):
        command = [program, "--no-pager", "-n", str(lines), "-u", f"brokerha-{cluster.name}-*"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_WITHIN_S, check=False)  # noqa: S603  (fixed words)
        except (OSError, subprocess.TimeoutExpired):
            return
        yield "journalctl.log", done.stdout.decode("utf-8", "replace")
