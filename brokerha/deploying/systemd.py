"""Units for systemd: one for each node, and a target that stands for all nodes of a cluster on this machine.

    brokerha-NAME.target          systemctl start | stop | status
    brokerha-NAME-NODE.service    one for each node

The secret of a node is given as a credential: its file may belong to root alone. A node sees the machine read-only but for its
data. It is started again for ever, except when its cluster file is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brokerha.deploying.files import File, Plan, filled
from brokerha.deploying.machine import CONFIGURATION_CODE, KILL_AFTER_S, LONGEST_STOP_S, OPEN_FILES, Program


def plan(
    cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path, writable: Sequence[Path]
) -> Plan:
    """The target and the units; ``writable`` are the folders of data and backups."""
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
            command=" ".join(map(quoted, program.command)),
            directory=escaped(str(directory)),
            secret=_secret(program),
            configuration=CONFIGURATION_CODE,
            longest_s=round(LONGEST_STOP_S),
            kill_s=KILL_AFTER_S,
            files=OPEN_FILES,
            writable=" ".join(quoted(str(each)) for each in writable),
        )
        files.append(File(Path(unit), text))
    folders = " ".join(str(each) for each in writable)
    steps = (
        f"as root: install -d -o {user} -m 0700 {folders}",
        f"as root: cp {folder}/{target} {folder}/brokerha-{cluster}-*.service /etc/systemd/system/",
        f"as root: systemctl daemon-reload; systemctl enable --now {target} {' '.join(units)}",
        f"systemctl list-dependencies {target}; journalctl -u 'brokerha-{cluster}-*'",
    )
    return Plan(tuple(files), next_steps=steps)


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
