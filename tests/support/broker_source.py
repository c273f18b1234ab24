"""Where the tests' broker comes from; the first that works is taken.

    1. BROKERHA_TEST_AMQP_URL (and BROKERHA_TEST_MANAGEMENT_URL, else port 15672 of the same host)
    2. a private node from a local binary         (private_broker.py)
    3. the same, after installing Debian's package as root or with a sudo that asks nothing
       BROKERHA_TEST_RABBITMQ=4 says that these are to be RabbitMQ 4, unpacked beside the system by install_broker.sh
    4. a container, if there is an engine          (testcontainers, rabbitmq:4-management)

If none works, NoBrokerError says what was tried. Whether that skips or fails a test is decided by ``is_required()``:
on a CI machine (CI=true) and with BROKERHA_REQUIRE_BROKER=1 a missing broker is a failure.

As a command it lends one broker to several test runs, or only makes sure that there is one:

    python -m tests.support.broker_source run -- pytest -m broker
    python -m tests.support.broker_source prepare
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

import httpx2

from tests.support.management import Management
from tests.support.private_broker import BrokerError, PrivateBroker, find_scripts, wants_4

AMQP_VARIABLE = "BROKERHA_TEST_AMQP_URL"
MANAGEMENT_VARIABLE = "BROKERHA_TEST_MANAGEMENT_URL"
_CONTAINER_IMAGE = "rabbitmq:4-management"
_INSTALLED_WITHIN_S = 900
_ENDED_WITHIN_S = 10
"""Less than the patience of whoever sends SIGTERM (all_parts: 20 s), so that the broker is stopped too."""


class NoBrokerError(RuntimeError):
    """There is no broker and none could be brought; the message lists what was tried."""


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """A broker that tests share: they take a virtual host of their own and leave the others alone."""

    amqp_url: str
    management_url: str
    origin: str
    """Where it comes from, in words for a test report."""
    private: PrivateBroker | None = None
    """The node itself, if it is ours to stop and start."""

    def url_of(self, vhost: str) -> str:
        """AMQP URL of a virtual host, which need not exist."""
        return urlsplit(self.amqp_url)._replace(path="/" + quote(vhost, safe=""), query="").geturl()

    def management(self) -> Management:
        """A fresh client of the management interface; the caller closes it."""
        return Management(self.management_url)

    def management_as(self, amqp_url: str) -> Management:
        """A fresh client of the management interface for the user of an AMQP URL."""
        parts, door = urlsplit(amqp_url), urlsplit(self.management_url)
        return Management(f"{door.scheme}://{parts.username}:{parts.password}@{door.hostname}:{door.port}")

    def create_vhost(self, name: str) -> str:
        """Makes a virtual host and returns its AMQP URL."""
        with self.management() as management:
            management.create_vhost(name)
        return self.url_of(name)

    def delete_vhost(self, name: str) -> None:
        """Removes a virtual host and all that is in it."""
        with self.management() as management:
            management.delete_vhost(name)

    @contextlib.contextmanager
    def imported(self, path: Path) -> Iterator[dict[str, Any]]:
        """What a file of definitions makes is there within the block; then its virtual hosts and its users are gone."""
        definitions: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        with self.management() as management:
            management.import_definitions(definitions)
        try:
            yield definitions
        finally:
            with self.management() as management:
                for vhost in definitions["vhosts"]:
                    management.delete_vhost(vhost["name"])
                for user in definitions["users"]:
                    management.delete_user(user["name"])


def is_required() -> bool:
    """Whether a missing broker is a failure instead of a reason to skip."""
    return os.environ.get("CI", "").lower() in {"1", "true"} or os.environ.get("BROKERHA_REQUIRE_BROKER") == "1"


@contextlib.contextmanager
def open_broker() -> Iterator[BrokerSource]:
    """The first broker that works, for the length of the context. Raises NoBrokerError."""
    with contextlib.ExitStack() as stack:
        yield _first_that_works(stack)


def local_scripts() -> Path:
    """The scripts of a local RabbitMQ, installed from Debian's package if need be. Raises NoBrokerError."""
    found = find_scripts()
    if found is not None:
        return found
    problem = _install_package("4" if wants_4() else "3")
    found = find_scripts()
    if found is None:
        raise NoBrokerError(problem or "the package rabbitmq-server brought no usable program")
    return found


def _first_that_works(stack: contextlib.ExitStack) -> BrokerSource:
    if url := os.environ.get(AMQP_VARIABLE):
        return _from_environment(url)
    tried = [f"{AMQP_VARIABLE} is not set"]
    try:
        return stack.enter_context(_private_node())
    except (NoBrokerError, BrokerError) as problem:
        tried.append(f"private node: {problem}")
    try:
        return stack.enter_context(_container())
    except NoBrokerError as problem:
        tried.append(f"container: {problem}")
    raise NoBrokerError("no RabbitMQ broker for the tests:\n- " + "\n- ".join(tried))


def _from_environment(amqp_url: str) -> BrokerSource:
    """A broker that somebody names is used or complained about, never silently replaced by another."""
    management_url = os.environ.get(MANAGEMENT_VARIABLE)
    if not management_url:
        parts = urlsplit(amqp_url)
        user, password = parts.username or "guest", parts.password or "guest"
        management_url = f"http://{user}:{password}@{parts.hostname}:15672"
    source = BrokerSource(amqp_url, management_url, f"{AMQP_VARIABLE} ({urlsplit(amqp_url).hostname})")
    try:
        with source.management() as management:
            management.overview()
    except httpx2.HTTPError as problem:
        host = urlsplit(management_url).hostname
        raise NoBrokerError(
            f"{AMQP_VARIABLE} is set, but its management interface on {host} does not answer ({problem}); "
            f"set {MANAGEMENT_VARIABLE}, or unset both to let the tests bring a broker"
        ) from problem
    return source


@contextlib.contextmanager
def _private_node() -> Iterator[BrokerSource]:
    scripts = local_scripts()
    with PrivateBroker(scripts) as node:
        yield BrokerSource(node.amqp_url, node.management_url, f"private node from {scripts}", node)


def _install_package(version: str) -> str:
    """Tries Debian's packages; returns "" or what went wrong."""
    if os.geteuid() != 0 and not _sudo_asks_nothing():
        return "no local RabbitMQ, and neither root nor a sudo without password to install the package rabbitmq-server"
    script = Path(__file__).with_name("install_broker.sh")
    try:
        done = subprocess.run(
            ["/bin/sh", str(script), version], capture_output=True, text=True, timeout=_INSTALLED_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"installing rabbitmq-server took more than {_INSTALLED_WITHIN_S} s"
    return "" if done.returncode == 0 else f"installing rabbitmq-server failed: {done.stderr[-1000:].strip()}"


def _sudo_asks_nothing() -> bool:
    sudo = shutil.which("sudo")
    if sudo is None:
        return False
    return subprocess.run([sudo, "-n", "true"], capture_output=True, timeout=30, check=False).returncode == 0


@contextlib.contextmanager
def _container() -> Iterator[BrokerSource]:
    with contextlib.ExitStack() as stack:
        yield _started_container(stack)


def _started_container(stack: contextlib.ExitStack) -> BrokerSource:
    """Starts the image and waits until it takes connections. Any failure means: no container engine that serves us."""
    user = password = "brokerha"  # RabbitMQ lets "guest" in from its own loopback only, which is not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What a library deprecates inside itself is not the tests' concern.
        try:
            from testcontainers.community.rabbitmq import RabbitMqContainer

            container = RabbitMqContainer(_CONTAINER_IMAGE, port=5672, username=user, password=password, vhost="/")
            container.with_exposed_ports(5672, 15672)
            stack.enter_context(container)
            host = container.get_container_host_ip()
            amqp_port, management_port = container.get_exposed_port(5672), container.get_exposed_port(15672)
        except Exception as problem:  # docker, requests and urllib3 each have errors of their own.
            raise NoBrokerError(f"{type(problem).__name__}: {problem}") from problem
    return BrokerSource(
        f"amqp://{user}:{password}@{host}:{amqp_port}/%2F",
        f"http://{user}:{password}@{host}:{management_port}",
        f"container {_CONTAINER_IMAGE}",
    )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as an exception, so that what it opened is closed; the second one and later ones are ignored meanwhile."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """The exit code of a command. When this process is told to end, the command is told first, and waited for a while."""
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=_ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(arguments: Sequence[str]) -> int:
    """The command: ``prepare``, or ``run -- COMMAND``. Ends with the command's exit code, or 2 without a broker."""
    try:
        if list(arguments) == ["prepare"]:
            if AMQP_VARIABLE not in os.environ:
                print(f"broker: {local_scripts()}", file=sys.stderr)
            return 0
        if list(arguments[:2]) == ["run", "--"] and len(arguments) > 2:
            with _ended_by_sigterm(), open_broker() as broker:
                print(f"broker: {broker.origin}", file=sys.stderr)
                lent = {AMQP_VARIABLE: broker.amqp_url, MANAGEMENT_VARIABLE: broker.management_url}
                return _run(list(arguments[2:]), os.environ | lent)
    except NoBrokerError as problem:
        print(problem, file=sys.stderr)
        return 2
    print("usage: python -m tests.support.broker_source prepare | run -- COMMAND", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
