"""Facts from the operating system: directories, disks, ports, limits, and files with secrets."""

from __future__ import annotations

import configparser
import contextlib
import errno
import os
import pwd
import re
import resource
import socket
import stat
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from brokerha.deploying import files, machine
from brokerha.deploying.machine import Program, supervisord_plan, systemd_plan
from brokerha.doctor.facts import DataFact, DeploymentFact, FileFact, LimitsFact
from brokerha.model.ids import NodeId
from brokerha.model.outside.hosts import is_loopback
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.file import FILE_SUFFIX

FSYNCS: Final = 20
FSYNC_BYTES: Final = 4096
_MOUNTS: Final = Path("/proc/self/mounts")
_CONTAINER_MEMORY: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def data_fact(node: NodeId, folder: Path) -> DataFact:
    """Describe the data directory of a node, or its nearest existing parent. Writes and deletes one file to measure."""
    user = user_name()
    there = _existing(folder)
    about = there.stat()
    disk = os.statvfs(there)
    is_writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return DataFact(
        node,
        str(folder),
        exists=folder.is_dir(),
        is_writable=is_writable,
        owner=user_name(about.st_uid),
        user=user,
        mode=stat.S_IMODE(about.st_mode),
        free_bytes=disk.f_bavail * disk.f_frsize,
        size_bytes=disk.f_blocks * disk.f_frsize,
        file_system=file_system(there, _MOUNTS.read_text(encoding="utf-8") if _MOUNTS.is_file() else ""),
        fsync_ms=fsync_ms(there) if is_writable else (),
    )


def file_system(folder: Path, mounts: str) -> str:
    r"""Return the file system type of a folder, by the text of /proc/self/mounts; empty without one.

    >>> file_system(Path("/srv/x"), "/dev/a / ext4 rw 0 0\ntmpfs /srv tmpfs rw 0 0\n")
    'tmpfs'
    """
    found, best = "", -1
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        # Blanks and backslashes are written as octal numbers, all other bytes literally.
        place = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), parts[1]))
        # The last of two mounts at one place hides the other.
        if folder.resolve().is_relative_to(place) and len(place.parts) >= best:
            found, best = parts[2], len(place.parts)
    return found


def fsync_ms(folder: Path) -> tuple[float, ...]:
    """Measure writes with fsync in milliseconds; none when the disk is full or read-only."""
    taken = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(FSYNCS):
                begun = time.perf_counter()
                os.write(file.fileno(), bytes(FSYNC_BYTES))
                os.fsync(file.fileno())
                taken.append((time.perf_counter() - begun) * 1000)
    except OSError:
        return ()
    return tuple(taken)


def limits_fact() -> LimitsFact:
    """Return the limits of this process."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER_MEMORY:
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(path.read_text(encoding="ascii")))
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        memory = min(memory, address_space)
    return LimitsFact(-1 if open_files == resource.RLIM_INFINITY else open_files, max(0, memory))


def secret_facts(config: ClusterConfig, environ: Mapping[str, str], secrets: Path | None) -> list[FileFact]:
    """Return all files with secrets of this machine: environment, secrets folder, [http], a cluster file with a password."""
    paths: dict[Path, None] = {}
    if _has_password(config.path):
        paths[config.path] = None
    for name, value in environ.items():
        if name.startswith("BROKERHA_") and name.endswith(FILE_SUFFIX) and not name.endswith("CA_FILE"):
            paths[Path(value)] = None
    if secrets is not None:
        paths |= dict.fromkeys(sorted(secrets.glob("*.url")))
    for value in (config.http_users, config.http_key):
        if value:
            for node in config.nodes:
                paths[config.path.parent / value.replace("{id}", node.id)] = None
    return [_file_fact(path) for path in paths if path.is_file()]


def _file_fact(path: Path) -> FileFact:
    about = path.stat()
    return FileFact(str(path), stat.S_IMODE(about.st_mode))


def _has_password(path: Path) -> bool:
    """Tell whether a broker of the file, without the environment, has a password that is not publicly known."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    urls = ";".join(str(each.get("broker", "")) for each in (written["cluster"], *written["master"]))
    return any((urlsplit(each).password or "guest") != "guest" for each in urls.split(";"))


def is_here(host: str) -> bool:
    """Tell whether the host is an address of this machine: a socket can bind it. Unknown names are not."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", 0, type=socket.SOCK_STREAM)  # noqa: S104  (not listened to)
    except OSError:
        return False
    for family, kind, protocol, _, place in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as tried:
            tried.bind(place)
            return True
    return False


def listens(host: str, port: int) -> bool:
    """Tell whether another program has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            # Like a node: a closed socket that still lingers is no obstacle.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def own_addresses() -> list[str]:
    """Return addresses of this machine that others can reach, without network traffic."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for _, _, _, _, place in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET, socket.SOCK_STREAM):
            found[str(place[0])] = None
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        # Sends nothing: the kernel only chooses the source address.
        asked.connect(("192.0.2.1", 9))
        found[str(asked.getsockname()[0])] = None
    return [each for each in found if not is_loopback(each)]


def deployment_facts(
    config: ClusterConfig, named: Sequence[NodeId], folder: Path, program: Sequence[str], secrets: Path | None
) -> list[DeploymentFact]:
    """Compare the files of supervisord and systemd in this folder with those that the cluster file needs; none without such files.

    The files themselves tell the user and the nodes of this machine: files for fewer nodes would stop the others. ``named`` nodes
    belong here as well, and those that the cluster file has at the same hosts.
    """
    if config.is_embedded or not folder.is_dir():
        return []
    directory = config.path.absolute().parent
    writable = machine.writable_folders(config)
    makers: dict[str, Callable[[Sequence[Program], str], files.Plan]] = {
        "supervisord": lambda programs, user: supervisord_plan(config.name, programs, user, folder, directory),
        "systemd": lambda programs, user: systemd_plan(config.name, programs, user, folder, directory, writable),
    }
    found = []
    for kind, plan_of in makers.items():
        every = plan_of(machine.programs(config, list(config.roles), program, None), "")
        texts = [path.read_text(encoding="utf-8") for each in every.files if (path := folder / each.path).is_file()]
        deployed, user = _started_by(texts)
        if not deployed & set(config.roles):
            continue
        hosts = {machine.host_of(config, each) for each in config.roles if each in deployed} - {""}
        nodes = [each for each in config.roles if each in {*deployed, *named} or machine.host_of(config, each) in hosts]
        plan = plan_of(machine.programs(config, nodes, program, secrets), user or user_name())
        options = f" --secrets {secrets}" if secrets else ""
        command = f"brokerha init {kind} -c {config.path} --deploy {folder} --nodes {','.join(nodes)} --user {user or user_name()}{options} --force"
        status = {str(each.path): each.status for each in files.compare(plan, folder)}
        found.append(DeploymentFact(kind, str(folder), status, command))
    return found


def _started_by(texts: Iterable[str]) -> tuple[set[NodeId], str]:
    """Return the nodes that files of supervisord or systemd start, and the user in the last one that names one."""
    nodes, user = set(), ""
    for text in texts:
        file = configparser.RawConfigParser(strict=False, allow_no_value=True)
        with contextlib.suppress(configparser.Error):
            file.read_string(text)
        for section in file.values():
            words = (section.get("command") or section.get("execstart") or "").split()
            nodes |= {
                node for word, node, option in zip(words, words[1:], words[2:], strict=False) if (word, option) == ("node", "-c")
            }
            user = section.get("user") or user
    return nodes, user


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def user_name(uid: int | None = None) -> str:
    """Return the name of a user, by default of this process; the number if it has no name."""
    uid = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
