"""A RabbitMQ node of our own: started from a local binary, on loopback, on free ports, in a folder that goes with it.

Nothing of a system-wide RabbitMQ is touched or read: own HOME and cookie, own port mapper (epmd), own data, an empty
environment file in place of /etc/rabbitmq. Debian's wrappers in /usr/sbin change the user and drop the environment,
so the scripts behind them are called. Tests may purge, kill and restart it as they like:

    with PrivateBroker() as broker:
        url = broker.create_vhost("orders")     # amqp://guest:guest@127.0.0.1:23117/orders
        broker.kill()                           # SIGKILL to the node; the port mapper stays
        broker.restart()                        # same ports, same data

Invariants: ports and data stay the same from start() to stop(); after stop() no process and no folder is left. If
the test run itself is killed, the next start() of anybody ends what it left behind.

As a command: ``python -m tests.support.private_broker --serve`` prints the URLs and runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self
from urllib.parse import quote

import httpx2

from tests.support.free_ports import free_ports
from tests.support.management import Management
from tests.support.owned_processes import FOLDER_PREFIX, home_of, kill_members, members, reap_left_behind, write_owner

_DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
VERSION_VARIABLE = "BROKERHA_TEST_RABBITMQ"
"""``4`` for RabbitMQ 4, else the one of this machine."""
ROOT_OF_4 = Path("/var/cache/brokerha/rabbitmq-4")
"""Where install_broker.sh unpacks RabbitMQ 4 with all that it needs; it runs with this as its root."""
_CTL_PORTS = 10
_START_ATTEMPTS = 3
_READY_WITHIN_S = 120.0
_STOPPED_WITHIN_S = 30.0
_CTL_WITHIN_S = 180.0
_TICK_TIME_S = 8
_MEMORY_LIMIT = "2GB"
_DISK_FREE_LIMIT = "200MB"


class BrokerError(RuntimeError):
    """The private broker could not be started or asked; the message ends with its last words."""


def wants_4() -> bool:
    """Whether the tests are to run over RabbitMQ 4."""
    return os.environ.get(VERSION_VARIABLE) == "4"


def find_scripts() -> Path | None:
    """The folder with rabbitmq-server and rabbitmqctl ($RABBITMQ_HOME/sbin, else Debian's), or None."""
    if wants_4():
        of_4 = ROOT_OF_4 / _DEBIAN_SCRIPTS.relative_to("/")
        return of_4 if (of_4 / "rabbitmq-server").is_file() and (ROOT_OF_4 / "proc" / "self").exists() else None
    home = os.environ.get("RABBITMQ_HOME")
    candidates = [Path(home) / "sbin"] if home else []
    for folder in [*candidates, _DEBIAN_SCRIPTS]:
        if (folder / "rabbitmq-server").is_file() and (folder / "rabbitmqctl").is_file() and shutil.which("epmd"):
            return folder
    return None


@dataclass(slots=True)
class Membership:
    """What the nodes of one cluster share; `broker_cluster.py` keeps it."""

    cookie: str
    epmd: int
    """Port of the port mapper, which is the cluster's."""
    members: list[str]
    """Names of the nodes that were started, first one first; a new one joins them."""


class PrivateBroker:
    """One node. ``start()`` or ``with`` it; ``amqp_url`` and ``management_url`` name it, user guest, on loopback."""

    def __init__(self, scripts: Path | None = None, rates_mode: str = "none", membership: Membership | None = None) -> None:
        """``rates_mode`` of the management interface: rates cost work, and only pictures show them. ``membership``: of a cluster."""
        found = scripts or find_scripts()
        if found is None:
            raise BrokerError("no RabbitMQ here: neither $RABBITMQ_HOME/sbin nor the package rabbitmq-server (and epmd)")
        self._scripts = found
        self._rates_mode = rates_mode
        self._membership = membership
        self._inside: tuple[str, ...] = ()
        """Words before each command, such as those that enter a network namespace, or another root."""
        if found.is_relative_to(ROOT_OF_4):
            self._inside = ("chroot", str(ROOT_OF_4))
            self._scripts = Path("/") / found.relative_to(ROOT_OF_4)
        self._folder: Path | None = None
        self._ports = _Ports()
        self._node: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def inside(self) -> tuple[str, ...]:
        """Words before each command that belongs to the node."""
        return self._inside

    @property
    def amqp_url(self) -> str:
        """URL of the default virtual host."""
        return self.url_of("/")

    @property
    def amqp_port(self) -> int:
        """Port on loopback, the same from start() to stop()."""
        return self._ports.amqp

    @property
    def name(self) -> str:
        """The node's name among RabbitMQ nodes."""
        return f"brokerha{self._ports.amqp}@localhost"

    @property
    def management_url(self) -> str:
        """URL of the management interface, with user and password."""
        return f"http://guest:guest@127.0.0.1:{self._ports.management}"

    @property
    def folder(self) -> Path:
        """Where the node keeps data and logs. Raises BrokerError before start() and after stop()."""
        if self._folder is None:
            raise BrokerError("the private broker was not started")
        return self._folder

    @property
    def is_running(self) -> bool:
        """Whether the node's process lives (it may still be booting)."""
        return self._node is not None and self._node.poll() is None

    def url_of(self, vhost: str) -> str:
        """AMQP URL of a virtual host, which need not exist."""
        return f"amqp://guest:guest@127.0.0.1:{self._ports.amqp}/{quote(vhost, safe='')}"

    def start(self) -> None:
        """Starts the node and returns when it takes connections. Raises BrokerError with its log if it does not."""
        if self._folder is not None:
            raise BrokerError("the private broker is started already")
        reap_left_behind()
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
            try:
                write_owner(self._folder)
                self._ports = _Ports.free()
                if self._membership is not None:
                    self._ports = self._ports._replace(epmd=self._membership.epmd)
                self._write_files()
                self._start_node()
            except BrokerError:  # Most likely somebody took one of the ports meanwhile: choose others.
                self.stop()
                if attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Ends node and port mapper and removes the folder; fine if nothing runs. No politeness: the data goes too."""
        if self._folder is None:
            return
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        kill_members(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def kill(self) -> None:
        """SIGKILL to the whole node, returns when all its processes are gone; the port mapper stays.

        What the broker confirmed is still there after restart(). What it did in the second before may not be: a
        stream declared just then can be missing, a quorum queue can come back without a leader, and consuming from
        it then hangs until somebody deletes it (seen with RabbitMQ 3.10).
        """
        if self._node is None:
            return
        with contextlib.suppress(ProcessLookupError):  # The group may be gone already.
            os.killpg(self._node.pid, signal.SIGKILL)
        self._node.wait()
        self._node = None
        kill_members(self.folder, keep=self._epmd_pids())

    def restart(self) -> None:
        """Starts the node again on the same ports and data: after kill(), or after a clean stop if it still runs."""
        self.end()
        self._start_node()

    def end(self) -> None:
        """Stops the node as an operator does, until restart(); fine if it does not run."""
        if self._node is None:
            return
        if self._node.poll() is None:
            os.killpg(self._node.pid, signal.SIGCONT)  # A frozen node would not hear the request.
            self._node.terminate()  # The shell script passes it on and waits for a clean stop.
            with contextlib.suppress(subprocess.TimeoutExpired):  # Not clean then: kill() is as safe, less polite.
                self._node.wait(timeout=_STOPPED_WITHIN_S)
        self.kill()

    def drain(self) -> None:
        """Puts the node into maintenance mode, until revive() or restart(): its clients are sent away, its queues are led by others."""
        self._run("rabbitmq-upgrade", "drain")

    def revive(self) -> None:
        """Ends the maintenance mode."""
        self._run("rabbitmq-upgrade", "revive")

    def freeze(self) -> None:
        """SIGSTOP: the node keeps its connections and says nothing more, until thaw()."""
        os.killpg(self._running_node().pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after freeze()."""
        os.killpg(self._running_node().pid, signal.SIGCONT)

    def create_vhost(self, name: str) -> str:
        """Makes a virtual host and returns its AMQP URL."""
        with self.management() as management:
            management.create_vhost(name)
        return self.url_of(name)

    def delete_vhost(self, name: str) -> None:
        """Removes a virtual host and all that is in it."""
        with self.management() as management:
            management.delete_vhost(name)

    def purge_queues(self, vhost: str) -> list[str]:
        """Empties every queue of a virtual host; returns their names."""
        with self.management() as management:
            return management.purge_queues(vhost)

    def delete_queues(self, vhost: str) -> list[str]:
        """Deletes every queue of a virtual host; returns their names."""
        with self.management() as management:
            return management.delete_queues(vhost)

    def close_all_connections(self) -> int:
        """Has the broker close every client connection; returns how many there were a moment before.

        Asks the node itself, because the management interface learns of a connection up to five seconds late.
        """
        count = len(self.ctl("list_connections", "pid", "--no-table-headers").split())
        self.ctl("close_all_connections", "--global", "closed by a test")
        return count

    def management(self) -> Management:
        """A fresh client of the management interface; the caller closes it."""
        return Management(self.management_url)

    def ctl(self, *arguments: str, given: str | None = None) -> str:
        """Runs rabbitmqctl against this node, for what the management interface cannot do. Returns its output."""
        return self._run("rabbitmqctl", "-q", *arguments, given=given)

    def _run(self, script: str, *arguments: str, given: str | None = None) -> str:
        command = [*self._inside, str(self._scripts / script), *arguments]
        try:
            done = subprocess.run(
                command, env=self._environment(), input=given, capture_output=True, text=True, timeout=_CTL_WITHIN_S, check=True
            )
        except subprocess.CalledProcessError as failure:
            raise BrokerError(f"{script} {' '.join(arguments)}: {failure.stderr or failure.stdout}") from failure
        except subprocess.TimeoutExpired as failure:
            raise BrokerError(f"{script} {' '.join(arguments)}: no answer in {_CTL_WITHIN_S:.0f} s") from failure
        return done.stdout

    def _running_node(self) -> subprocess.Popen[bytes]:
        if self._node is None or self._node.poll() is not None:
            raise BrokerError("the private broker does not run")
        return self._node

    def _epmd_pids(self) -> set[int]:
        return {self._epmd.pid} if self._epmd is not None else set()

    def _write_files(self) -> None:
        home = home_of(self.folder)
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16) if self._membership is None else self._membership.cookie, encoding="ascii")
        cookie.chmod(0o400)
        (self.folder / "empty.conf").write_text("", encoding="ascii")
        # A node that is frozen holds up what the others write down together, until they give it up.
        kernel = "" if self._membership is None else f"{{kernel, [{{net_ticktime, {_TICK_TIME_S}}}]}}"
        (self.folder / "advanced.config").write_text(f"[{kernel}].\n", encoding="ascii")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_federation].\n", encoding="ascii")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._ports.amqp}\n"
            "management.tcp.ip = 127.0.0.1\n"
            f"management.tcp.port = {self._ports.management}\n"
            f"management.rates_mode = {self._rates_mode}\n"
            "log.file.level = warning\n"
            f"vm_memory_high_watermark.absolute = {_MEMORY_LIMIT}\n"
            f"disk_free_limit.absolute = {_DISK_FREE_LIMIT}\n" + self._joining(),
            encoding="ascii",
        )

    def _joining(self) -> str:
        """The lines that make a new node join the members of its cluster at its first start."""
        if self._membership is None:
            return ""
        nodes = [*self._membership.members, self.name]
        return (
            "cluster_formation.peer_discovery_backend = classic_config\ncluster_partition_handling = pause_minority\n"
        ) + "".join(f"cluster_formation.classic_config.nodes.{place} = {name}\n" for place, name in enumerate(nodes, 1))

    def _environment(self) -> dict[str, str]:
        """The caller's environment without anything of another RabbitMQ, and with all that makes this node private."""
        folder, ports = self.folder, self._ports
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return kept | {
            "HOME": str(home_of(folder)),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(ports.amqp),
            "RABBITMQ_DIST_PORT": str(ports.distribution),
            "RABBITMQ_CTL_DIST_PORT_MIN": str(ports.ctl),
            "RABBITMQ_CTL_DIST_PORT_MAX": str(ports.ctl + _CTL_PORTS - 1),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "empty.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _ensure_epmd(self) -> None:
        """Starts the port mapper, also when somebody outside ended it (removing Debian's erlang-base does)."""
        if self._membership is not None or (self._epmd is not None and self._epmd.poll() is None):
            return
        self._epmd = subprocess.Popen(
            [*self._inside, "epmd", "-port", str(self._ports.epmd), "-address", "127.0.0.1"],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _start_node(self) -> None:
        self._ensure_epmd()
        with (self.folder / "out").open("ab") as out:
            self._node = subprocess.Popen(
                [*self._inside, str(self._scripts / "rabbitmq-server")],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._await_ready(self._node)

    def _await_ready(self, node: subprocess.Popen[bytes]) -> None:
        """Asks once per tenth of a second: the node has no cheaper way to tell (rabbitmqctl boots a second Erlang)."""
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"RabbitMQ is not ready after {_READY_WITHIN_S:.0f} s\n{self._last_words()}")
            try:
                code = node.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            raise BrokerError(f"RabbitMQ ended with code {code} while starting\n{self._last_words()}")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._ports.amqp), timeout=1).close()
            with self.management() as management:
                listening = {each.get("port") for each in management.overview().get("listeners", [])}
        except (OSError, httpx2.HTTPError):
            return False
        return self._ports.amqp in listening

    def _last_words(self) -> str:
        paths = [self.folder / "out", *sorted((self.folder / "log").glob("*.log"))]
        return "\n".join(path.read_text(encoding="utf-8", errors="replace")[-2000:] for path in paths if path.is_file())


class _Ports(NamedTuple):
    """The ports of one node; all zero until ``free()`` has chosen them."""

    amqp: int = 0
    management: int = 0
    distribution: int = 0
    epmd: int = 0
    ctl: int = 0
    """First of the ports from which each run of rabbitmqctl takes one."""

    @classmethod
    def free(cls) -> _Ports:
        """Four single ports and a run of ten that nobody uses at this moment."""
        first = free_ports(4 + _CTL_PORTS)
        return cls(*range(first, first + 5))


def main() -> int:
    """The command: serves until Ctrl-C or SIGTERM. URLs go to standard output, everything else to standard error."""
    parser = argparse.ArgumentParser(description="A private RabbitMQ node on free loopback ports.")
    parser.add_argument("--serve", action="store_true", required=True, help="run until Ctrl-C")
    parser.add_argument("--vhost", default="/", help="virtual host to create and to name in the URL")
    options = parser.parse_args()
    ended = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    try:
        with PrivateBroker() as broker:
            print(f"BROKERHA_TEST_AMQP_URL={broker.create_vhost(options.vhost)}")
            print(f"BROKERHA_TEST_MANAGEMENT_URL={broker.management_url}", flush=True)
            print(f"node in {broker.folder}, processes {members(broker.folder)}; Ctrl-C ends it", file=sys.stderr)
            ended.wait()
    except BrokerError as failure:
        print(failure, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
