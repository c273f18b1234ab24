"""Units for systemd: one for each node, and a target that stands for all nodes of a cluster on this machine.

    brokerha-NAME.target          systemctl start | stop | status
    brokerha-NAME-NODE.service    one for each node

The secret of a node is given as a credential: its file may belong to root alone. A node sees the machine read-only but for its
data. It is started again for ever, except when its cluster file is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brokerha.deploying.files import File, Plan
from brokerha.deploying.machine import CONFIGURATION_CODE, KILL_AFTER_S, LONGEST_STOP_S, OPEN_FILES, Program

_HEAD = "# Made by `brokerha init systemd`; change the cluster file, then make it again.\n"
_TARGET = """\
[Unit]
Description=brokerha: all nodes of the cluster {cluster} on this machine
Wants={units}

[Install]
WantedBy=multi-user.target
"""
_UNIT = """\
[Unit]
Description=brokerha: {role} {node} of the cluster {cluster}
Wants=network-online.target
After=network-online.target
PartOf={target}
# Never give up: a broker that is away for an hour must not leave a stopped node behind.
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command}
WorkingDirectory={directory}
Environment=PYTHONUNBUFFERED=1
{secret}Restart=always
RestartSec=2
# The cluster file is wrong: starting again does not help.
RestartPreventExitStatus={configuration}
# A node ends in order within {longest_s:.0f} s of SIGTERM; kill -9 is as safe.
KillSignal=SIGTERM
KillMode=mixed
TimeoutStopSec={kill_s}
LimitNOFILE={files}
UMask=0077
# It may write its data and backups, and nothing else; it gains no right that its user has not.
ReadWritePaths={writable}
ProtectSystem=strict
ProtectHome=read-only
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy={target}
"""


def plan(
    cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path, writable: Sequence[Path]
) -> Plan:
    """The target and the units; ``writable`` are the folders of data and backups."""
    target = f"brokerha-{cluster}.target"
    units = [unit_of(cluster, program) for program in programs]
    files = [File(Path(target), _HEAD + _TARGET.format(cluster=cluster, units=" ".join(units)))]
    for program, unit in zip(programs, units, strict=True):
        text = _UNIT.format(
            role=program.role,
            node=program.node,
            cluster=cluster,
            target=target,
            user=user,
            command=" ".join(map(quoted, program.command)),
            directory=escaped(str(directory)),
            secret=_secret(program),
            configuration=CONFIGURATION_CODE,
            longest_s=LONGEST_STOP_S,
            kill_s=KILL_AFTER_S,
            files=OPEN_FILES,
            writable=" ".join(quoted(str(each)) for each in writable),
        )
        files.append(File(Path(unit), _HEAD + text))
    folders = " ".join(str(each) for each in writable)
    steps = (
        f"as root: install -d -o {user} -m 0700 {folders}",
        f"as root: cp {folder}/{target} {folder}/brokerha-{cluster}-*.service /etc/systemd/system/",
        f"as root: systemctl daemon-reload; systemctl enable --now {target} {' '.join(units)}",
        f"systemctl list-dependencies {target}; journalctl -u 'brokerha-{cluster}-*'",
    )
    return Plan(tuple(files), next_steps=steps)


def unit_of(cluster: str, program: Program) -> str:
    """Name of the unit of a node."""
    return f"brokerha-{cluster}-{program.node}.service"


def escaped(text: str) -> str:
    """Text in which no percent sign begins a specifier."""
    return text.replace("%", "%%")


def quoted(word: str) -> str:
    r"""One word of a command line of a unit.

    >>> quoted("/a b"), quoted("50%"), quoted("$HOME")
    ('"/a b"', '50%%', '$$HOME')
    """
    text = escaped(word).replace("$", "$$")
    if not text or any(each in text for each in " \t'\"\\;"):
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    return text


def _secret(program: Program) -> str:
    """The secret as a credential, and the variables that name it."""
    paths = dict.fromkeys(program.environment.values())
    lines = [f"LoadCredential=broker-url:{escaped(path)}" for path in paths]
    lines += [f"Environment={name}=%d/broker-url" for name in program.environment]
    return "".join(f"{line}\n" for line in lines)
