"""Findings about this machine: directories, disks, ports, limits, secrets, files of a deployment. Pure."""

from __future__ import annotations

import shlex
from statistics import median
from typing import Final

from brokerha.deploying.files import SAME
from brokerha.deploying.machine import OPEN_FILES
from brokerha.doctor.facts import DataFact, DeploymentFact, FileFact, LimitsFact, PortFact
from brokerha.doctor.findings import OK, PROBLEM, WARNING, Finding, not_checked

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
    subject = f"secret {file.path}"
    if file.mode & 0o077:
        return Finding(
            PROBLEM, subject, f"others may read it (mode {file.mode:04o})", f"chmod 0600 {shlex.quote(file.path)}"
        )
    return Finding(OK, subject, f"mode {file.mode:04o}")


def of_data(data: DataFact) -> list[Finding]:
    """What a directory and its disk are like."""
    subject, path = f"{data.node} data", shlex.quote(data.path)
    if not data.exists:
        if data.is_writable:
            return [Finding(OK, subject, f"{data.path} is not there yet; the node makes it"), *_disk(data, subject)]
        made = f"install -d -o {data.user} -m 0700 {path}"
        return [Finding(PROBLEM, subject, f"{data.path} is not there, and {data.user} cannot make it", made)]
    if not data.is_writable:
        what = f"{data.path} belongs to {data.owner}, and {data.user} cannot write there"
        return [Finding(PROBLEM, subject, what, f"chown -R {data.user} {path}")]
    found = []
    if data.owner != data.user:
        what = f"{data.path} belongs to {data.owner}, this is {data.user}: nodes and commands should be one user"
        found.append(Finding(WARNING, subject, what, f"sudo -u {data.owner} brokerha doctor"))
    elif data.mode & 0o022:
        what = f"others may write to {data.path} (mode {data.mode:04o})"
        found.append(Finding(PROBLEM, subject, what, f"chmod go-w {path}"))
    else:
        found.append(Finding(OK, subject, f"{data.path} belongs to {data.owner}"))
    return found + _disk(data, subject)


def _disk(data: DataFact, subject: str) -> list[Finding]:
    return [_free(data, subject), _file_system(data, subject), _fsync(data, subject)]


def _free(data: DataFact, subject: str) -> Finding:
    share = data.free_bytes / max(1, data.size_bytes)
    what = f"{data.free_bytes / GIGABYTE:,.1f} GB are free, {share:.0%} of the disk"
    command = "give the disk more room, or lower tx-log-max-size"
    is_much = data.free_bytes >= FREE_ENOUGH_BYTES
    if data.free_bytes < FREE_PROBLEM_BYTES or (share < FREE_PROBLEM_SHARE and not is_much):
        return Finding(PROBLEM, subject, what, command)
    if data.free_bytes < FREE_WARNING_BYTES or (share < FREE_WARNING_SHARE and not is_much):
        return Finding(WARNING, subject, what, command)
    return Finding(OK, subject, what)


def _file_system(data: DataFact, subject: str) -> Finding:
    command = "move it to a local disk: set data in [cluster]"
    if not data.file_system:
        return not_checked(subject, "nobody says which file system it is")
    if data.file_system in _FORGETTING:
        what = f"on {data.file_system}, which is memory: what was acknowledged is lost when the machine stops"
        return Finding(PROBLEM, subject, what, command)
    if data.file_system in _REMOTE:
        what = f"on {data.file_system}, a disk of another machine: maps of files and fsync are not safe there"
        return Finding(PROBLEM, subject, what, command)
    return Finding(OK, subject, f"on {data.file_system}")


def _fsync(data: DataFact, subject: str) -> Finding:
    if not data.fsync_ms:
        return not_checked(subject, "nothing can be written there, so that fsync was not measured")
    typical = median(data.fsync_ms)
    what = f"fsync takes {typical:.1f} ms (the middle of {len(data.fsync_ms)})"
    if typical > SLOW_FSYNC_MS:
        return Finding(WARNING, subject, f"{what}: each transaction waits for it", "put data on a faster disk")
    return Finding(OK, subject, what)


def of_port(port: PortFact) -> list[Finding]:
    """Whether a node can have its address, and who could come in there."""
    subject = f"{port.node} http"
    return [_held(port, subject), _door(port, subject)]


def _held(port: PortFact, subject: str) -> Finding:
    number = port.address.rpartition(":")[2]
    if not port.is_here:
        what = f"{port.address} is no address of this machine"
        return Finding(PROBLEM, subject, what, f"correct http of {port.node}, or name the nodes of this machine")
    if not port.listens:
        return Finding(OK, subject, f"{port.address} is free")
    if port.is_node:
        return Finding(OK, subject, f"a node answers at {port.address}")
    what = f"another program holds {port.address}"
    return Finding(PROBLEM, subject, what, f"ss -ltnp 'sport = :{number}'")


def _door(port: PortFact, subject: str) -> Finding:
    if port.is_loopback:
        return Finding(OK, subject, "only this machine reaches it")
    if port.has_certificate:
        return Finding(OK, subject, "other machines reach it, over TLS")
    if port.is_plain:
        return Finding(OK, subject, "other machines reach it without TLS: http-plain = true says that others are kept out")
    what = f"other machines reach {port.address} without TLS"
    return Finding(PROBLEM, subject, what, "set http-certificate and http-key, or a loopback address as http")


def of_limits(limits: LimitsFact) -> list[Finding]:
    """Whether nodes get what they need."""
    files = "no limit" if limits.open_files < 0 else f"{limits.open_files:,}"
    if 0 <= limits.open_files < OPEN_FILES:
        what = f"a process may open {files} files: {OPEN_FILES:,} are wanted"
        found = [Finding(WARNING, "open files", what, f"ulimit -n {OPEN_FILES}")]
    else:
        found = [Finding(OK, "open files", files)]
    if not limits.memory_bytes:
        return [*found, not_checked("memory", "nobody says how much there is")]
    what = f"{limits.memory_bytes / GIGABYTE:,.1f} GB"
    if limits.memory_bytes < MEMORY_WARNING_BYTES:
        return [*found, Finding(WARNING, "memory", f"{what}: a node wants 1 GB", "give the machine more memory")]
    return [*found, Finding(OK, "memory", what)]


def of_deployment(files: DeploymentFact) -> Finding:
    """Whether deployment files are what the cluster file asks for now."""
    subject = f"{files.kind} files"
    old = [path for path, status in files.status.items() if status != SAME]
    if old:
        return Finding(WARNING, subject, f"out of date: {', '.join(old)}", files.command)
    return Finding(OK, subject, f"up to date in {files.folder}")
