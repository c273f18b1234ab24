"""Findings about this machine: directories, disks, ports, limits, secrets, files of a deployment. Pure."""

from __future__ import annotations

import shlex
from statistics import median
from typing import Final

from brokerha.deploying.files import SAME
from brokerha.deploying.machine import OPEN_FILES
from brokerha.doctor.facts import DataFact, DeploymentFact, FileFact, LimitsFact, PortFact
from brokerha.doctor.findings import PROBLEM, WARNING, Finding, judged, not_checked

GIGABYTE: Final = 1_000_000_000
FREE_PROBLEM_BYTES: Final = 1 * GIGABYTE
FREE_WARNING_BYTES: Final = 5 * GIGABYTE
FREE_PROBLEM_SHARE: Final = 0.02
FREE_WARNING_SHARE: Final = 0.10
FREE_ENOUGH_BYTES: Final = 100 * GIGABYTE
"""So much is enough, whatever its share of a large disk is."""
SLOW_FSYNC_MS: Final = 20.0
MEMORY_WARNING_BYTES: Final = 1 * GIGABYTE
_FORGETTING = frozenset({"tmpfs", "ramfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p"})


def of_secret(file: FileFact) -> Finding:
    """Whether others may read a file that holds a secret."""
    mode = f"mode {file.mode:04o}"
    command = f"chmod 0600 {shlex.quote(file.path)}"
    return judged(f"secret {file.path}", mode, (file.mode & 0o077, PROBLEM, f"others may read it ({mode})", command))


def of_data(data: DataFact) -> list[Finding]:
    """What a directory and its disk are like."""
    subject, path = f"{data.node} data", shlex.quote(data.path)
    there = f"{data.path} belongs to {data.owner}"
    folder = judged(
        subject,
        there if data.exists else f"{data.path} is not there yet; the node makes it",
        (
            not data.exists and not data.is_writable, PROBLEM,
            f"{data.path} is not there, and {data.user} cannot make it",
            f"install -d -o {data.user} -m 0700 {path}",
        ),
        (not data.is_writable, PROBLEM, f"{there}, and {data.user} cannot write there", f"chown -R {data.user} {path}"),
        (
            data.exists and data.owner != data.user, WARNING,
            f"{there}, this is {data.user}: nodes and commands should be one user",
            f"sudo -u {data.owner} brokerha doctor",
        ),
        (
            data.exists and data.mode & 0o022, PROBLEM,
            f"others may write to {data.path} (mode {data.mode:04o})",
            f"chmod go-w {path}",
        ),
    )  # fmt: skip
    if not data.is_writable:
        return [folder]
    return [folder, _free(data, subject), _file_system(data, subject), _fsync(data, subject)]


def _free(data: DataFact, subject: str) -> Finding:
    share = data.free_bytes / max(1, data.size_bytes)
    what = f"{data.free_bytes / GIGABYTE:,.1f} GB are free, {share:.0%} of the disk"
    command = "give the disk more room, or lower tx-log-max-size"

    def is_below(least_bytes: int, least_share: float) -> bool:
        return data.free_bytes < least_bytes or (share < least_share and data.free_bytes < FREE_ENOUGH_BYTES)

    return judged(
        subject,
        what,
        (is_below(FREE_PROBLEM_BYTES, FREE_PROBLEM_SHARE), PROBLEM, what, command),
        (is_below(FREE_WARNING_BYTES, FREE_WARNING_SHARE), WARNING, what, command),
    )


def _file_system(data: DataFact, subject: str) -> Finding:
    if not data.file_system:
        return not_checked(subject, "nobody says which file system it is")
    where, command = f"on {data.file_system}", "move it to a local disk: set data in [cluster]"
    forgets = f"{where}, which is memory: what was acknowledged is lost when the machine stops"
    is_far = f"{where}, a disk of another machine: maps of files and fsync are not safe there"
    return judged(
        subject,
        where,
        (data.file_system in _FORGETTING, PROBLEM, forgets, command),
        (data.file_system in _REMOTE, PROBLEM, is_far, command),
    )


def _fsync(data: DataFact, subject: str) -> Finding:
    if not data.fsync_ms:
        return not_checked(subject, "nothing can be written there, so that fsync was not measured")
    typical = median(data.fsync_ms)
    what = f"fsync takes {typical:.1f} ms (the middle of {len(data.fsync_ms)})"
    slow = f"{what}: each transaction waits for it"
    return judged(subject, what, (typical > SLOW_FSYNC_MS, WARNING, slow, "put data on a faster disk"))


def of_port(port: PortFact) -> list[Finding]:
    """Whether a node can have its address, and who could come in there."""
    subject, number = f"{port.node} http", port.address.rpartition(":")[2]
    held = judged(
        subject,
        f"a node answers at {port.address}" if port.listens else f"{port.address} is free",
        (
            not port.is_here, PROBLEM,
            f"{port.address} is no address of this machine",
            f"correct http of {port.node}, or name the nodes of this machine",
        ),
        (
            port.listens and not port.is_node, PROBLEM,
            f"another program holds {port.address}",
            f"ss -ltnp 'sport = :{number}'",
        ),
    )  # fmt: skip
    guarded = (
        "only this machine reaches it" if port.is_loopback
        else "other machines reach it, over TLS" if port.has_certificate
        else "other machines reach it without TLS: http-plain = true says that others are kept out"
    )  # fmt: skip
    is_open = not (port.is_loopback or port.has_certificate or port.is_plain)
    command = "set http-certificate and http-key (brokerha init certificates makes them), or a loopback address as http"
    return [held, judged(subject, guarded, (is_open, PROBLEM, f"other machines reach {port.address} without TLS", command))]


def of_limits(limits: LimitsFact) -> list[Finding]:
    """Whether nodes get what they need."""
    files = "no limit" if limits.open_files < 0 else f"{limits.open_files:,}"
    few = f"a process may open {files} files: {OPEN_FILES:,} are wanted"
    found = [judged("open files", files, (0 <= limits.open_files < OPEN_FILES, WARNING, few, f"ulimit -n {OPEN_FILES}"))]
    if not limits.memory_bytes:
        return [*found, not_checked("memory", "nobody says how much there is")]
    what = f"{limits.memory_bytes / GIGABYTE:,.1f} GB"
    is_little = limits.memory_bytes < MEMORY_WARNING_BYTES
    little = (is_little, WARNING, f"{what}: a node wants 1 GB", "give the machine more memory")
    return [*found, judged("memory", what, little)]


def of_deployment(files: DeploymentFact) -> Finding:
    """Whether deployment files are what the cluster file asks for now."""
    old = [path for path, status in files.status.items() if status != SAME]
    out_of_date = (old, WARNING, f"out of date: {', '.join(old)}", files.command)
    return judged(f"{files.kind} files", f"up to date in {files.folder}", out_of_date)
