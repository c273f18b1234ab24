"""The programs of one machine: its nodes, the command and environment of each, and the timeouts around them.

    a node stops by itself            within LONGEST_STOP_S
    its supervisor kills it           after KILL_AFTER_S
    the supervisor itself is killed   after KILL_SUPERVISOR_AFTER_S

Each timeout is longer than the one before, so that a node that is about to stop in order is not killed. A kill is as safe, but
leaves more work to repeat.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from brokerha.deploying.files import File, Plan, filled
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.file import FILE_SUFFIX, variable
from brokerha.nodes.config.settings import nearest
from brokerha.nodes.serving import STOP_S

LONGEST_STOP_S: Final = 7 * STOP_S
"""A worker closes its door, its reads, its loop, its scrub, its tasks, its threads and its connections, each within STOP_S."""
KILL_AFTER_S: Final = 90
KILL_SUPERVISOR_AFTER_S: Final = 105
OPEN_FILES: Final = 8192
"""For clients, data files and connections."""
CONFIGURATION_CODE: Final = 78
"""Exit code of a node with a wrong cluster file: a restart does not help."""
ORDER: Final = {"master": 100, "backup": 200, "worker": 300}
"""Masters start first and stop last, so that no master reports a missing worker. Any order would work."""


@dataclass(frozen=True, slots=True)
class Program:
    """One node of this machine."""

    node: NodeId
    role: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def nodes_here(config: ClusterConfig, names: Sequence[str] = (), hosts: Collection[str] = ()) -> list[NodeId]:
    """Return the ids of the nodes of this machine, in the order of the file: the named ones, else those at these hosts, else all.

    A node without an http address belongs to its master's machine. Raises ConfigurationError for an unknown node, and when none is
    left.
    """
    if config.is_embedded:
        raise ConfigurationError(f"{config.path}: embedded:// is one process, which needs no deployment: name a RabbitMQ in broker")
    ids = [node.id for node in config.nodes]
    for name in names:
        if name not in ids:
            raise ConfigurationError(f'{config.path}: there is no node "{name}": write {nearest(name, ids)}')
    if names:
        return [each for each in ids if each in names]
    if not hosts:
        return ids
    found = [each for each in ids if host_of(config, each) in hosts]
    if not found:
        known = sorted({host_of(config, each) for each in ids} - {""})
        raise ConfigurationError(f"{config.path}: no node has an http address at {', '.join(hosts)}: there are {', '.join(known)}")
    return found


def broker_variables(config: ClusterConfig, node: NodeId) -> list[str]:
    """Return the environment variables that name the file with the URL of a node's broker.

    There is one for each place of the cluster file with this broker, because equal URLs mean a shared broker.
    """
    url = config.broker_of(node)
    of_cluster = [variable("cluster", "broker")] if config.broker == url else []
    of_masters = [variable("master", "broker", each.id) for each in config.masters if each.broker == url]
    return [name + FILE_SUFFIX for name in (*of_cluster, *of_masters)]


def programs(config: ClusterConfig, nodes: Sequence[NodeId], program: Sequence[str], secrets: Path | None) -> list[Program]:
    """Return the programs of these nodes; ``program`` runs brokerha, ``secrets`` is a folder with their own broker URLs."""
    found = []
    for node in nodes:
        environment = dict.fromkeys(broker_variables(config, node), str(url_file(secrets, node))) if secrets else {}
        command = (*program, "node", node, "-c", str(config.path.absolute()))
        found.append(Program(node, config.roles[node], command, environment))
    return found


def writable_folders(config: ClusterConfig) -> list[Path]:
    """Return the folders that nodes write to: data, and backups if they are elsewhere."""
    data, backups = config.data.absolute(), config.backups_directory.absolute()
    return [data] if backups.is_relative_to(data) else [data, backups]


def url_file(secrets: Path, name: str) -> Path:
    """Return the path of a user's broker URL, which contains the password."""
    return secrets / f"{name}.url"


def host_of(config: ClusterConfig, node: NodeId) -> str:
    """Return the host of a node's http address, or of its master's; empty without either."""
    address = config.node(node).http or config.node(config.master_of(node)).http
    return address.rpartition(":")[0].strip("[]")


# ---- Supervision of the nodes of one machine: files for supervisord, and units for systemd.
#
#     supervisord.conf              unix socket for the same user only, bounded log, no network door
#     brokerha-NAME.conf            one program NAME-NODE for each node, which another supervisord can include; no group, because
#                                   `supervisorctl update` restarts a whole group when one of its programs is new or changed
#
#     brokerha-NAME.target          systemctl start | stop | status: all nodes of a cluster on this machine
#     brokerha-NAME-NODE.service    one for each node
#
# A node waits for its broker and does not end without it. If a program still ends again and again, supervisord retries for years: the
# pause between retries grows by one second each time (the million of templates/program.conf is never reached), so no program becomes
# FATAL. systemd restarts it for ever, except when its cluster file is wrong.
#
# A systemd unit gets the secret of its node as a credential, so the file can belong to root alone. The node sees the machine
# read-only except for its data.

CONFIGURATION: Final = Path("supervisord.conf")
LOGS: Final = Path("log")
SOCKET_FOLDER: Final = Path("run")
_HEAD: Final = "; Made by `brokerha init supervisord`; change the cluster file, then make it again.\n"


def supervisord_plan(cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path) -> Plan:
    """Plan both files, for programs that run as ``user`` in ``directory``; logs and socket go below ``folder``.

    Raises ConfigurationError for a path that supervisord cannot read.
    """
    _check_readable(programs, folder.absolute(), directory)
    programs_file = f"brokerha-{cluster}.conf"
    parts = [
        filled(
            "program.conf",
            name=f"{cluster}-{program.node}",
            command=escaped(shlex.join(program.command)),
            user=user,
            directory=escaped(str(directory)),
            environment=environment_text(program.environment),
            priority=ORDER[program.role],
            longest_s=round(LONGEST_STOP_S),
            kill_s=KILL_AFTER_S,
            log=f"{escaped(str(folder.absolute() / LOGS / program.node))}.log",
        )
        for program in programs
    ]
    own = filled("supervisord.conf", user=user, files=OPEN_FILES, programs=programs_file)
    configuration = shlex.quote(str(folder / CONFIGURATION))
    steps = (
        f"supervisord -c {configuration}",
        f"supervisorctl -c {configuration} status",
        f"supervisorctl -c {configuration} stop all",
        f"in a supervisord that runs already: put {programs_file} into its folder conf.d, then: supervisorctl update",
    )
    files = (File(CONFIGURATION, own), File(Path(programs_file), "\n".join([_HEAD, *parts])))
    return Plan(files, (LOGS, SOCKET_FOLDER), steps)


def _check_readable(programs: Sequence[Program], folder: Path, directory: Path) -> None:
    """Refuse what nothing escapes for supervisord, which would not start: comments begin after a space, and no escape survives its `%(here)s`."""
    secrets = [value for program in programs for value in program.environment.values()]
    commands = [word for program in programs for word in program.command]
    for text in (str(folder), str(directory), *secrets, *commands):
        marks = [*(" ;", " #", "\n"), *('"' if text in secrets else ""), *("%" if text == str(folder) else "")]
        if strange := next((mark for mark in marks if mark in text), ""):
            raise ConfigurationError(f"supervisord cannot read {strange!r} in the path {text!r}: use a folder whose path has none")


def escaped(text: str) -> str:
    """Escape text for supervisord, where a percent sign begins an expansion.

    >>> escaped("100%")
    '100%%'
    """
    return text.replace("%", "%%")


def environment_text(environment: dict[str, str]) -> str:
    """Format variables for supervisord.

    >>> environment_text({"A": "x y"})
    'PYTHONUNBUFFERED="1",A="x y"'
    """
    variables = {"PYTHONUNBUFFERED": "1", **environment}
    return ",".join(f'{name}="{escaped(value)}"' for name, value in variables.items())


# ---- systemd, in whose units a percent sign begins a specifier


def systemd_plan(
    cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path, writable: Sequence[Path]
) -> Plan:
    """Plan the target and the units; ``writable`` are the folders of data and backups."""
    target = f"brokerha-{cluster}.target"
    units = [f"brokerha-{cluster}-{program.node}.service" for program in programs]
    files = [File(Path(target), filled("nodes.target", cluster=cluster, units=" ".join(units)))]
    for program, unit in zip(programs, units, strict=True):
        text = filled(
            "node.service",
            role=program.role,
            node=program.node,
            cluster=cluster,
            target=target,
            user=user,
            # systemd takes the path of the program itself literally.
            command=" ".join([listed(program.command[0]), *map(quoted, program.command[1:])]),
            directory=str(directory).replace("%", "%%"),
            secret=_secret(program),
            configuration=CONFIGURATION_CODE,
            longest_s=round(LONGEST_STOP_S),
            kill_s=KILL_AFTER_S,
            files=OPEN_FILES,
            writable=" ".join(listed(str(each)) for each in writable),
        )
        files.append(File(Path(unit), text))
    here, folders = shlex.quote(str(folder)), shlex.join(map(str, writable))
    steps = (
        f"as root: install -d -o {user} -m 0700 {folders}",
        f"as root: cp {here}/{target} {here}/brokerha-{cluster}-*.service /etc/systemd/system/",
        f"as root: systemctl daemon-reload; systemctl enable --now {target} {' '.join(units)}",
        f"systemctl list-dependencies {target}; journalctl -u 'brokerha-{cluster}-*'",
    )
    return Plan(tuple(files), next_steps=steps)


def quoted(word: str) -> str:
    r"""Quote one argument of a unit's command line, where a dollar sign begins a variable.

    >>> quoted("/a b"), quoted("50%"), quoted("$HOME")
    ('"/a b"', '50%%', '$$HOME')
    """
    return listed(word).replace("$", "$$")


def listed(word: str) -> str:
    r"""Quote one word of a list in a unit.

    >>> listed("/a b"), listed("$HOME")
    ('"/a b"', '$HOME')
    """
    text = word.replace("%", "%%")
    if not text or any(each in text for each in " \t'\"\\;"):
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    return text


def _secret(program: Program) -> str:
    """Return the secret as a credential, and the variables that name it."""
    paths = dict.fromkeys(program.environment.values())
    lines = [f"LoadCredential=broker-url:{path.replace('%', '%%')}" for path in paths]
    lines += [f"Environment={name}=%d/broker-url" for name in program.environment]
    return "".join(f"{line}\n" for line in lines)
