"""Gathered facts, and the needs of nodes from a broker: plain values without judgement, and without passwords.

``None`` means unknown; a field that ends in ``_problem`` has the reason of a failure, or is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from brokerha.transports.rights import Rights, TopicRights
from brokerha.transports.topology import QueueRow


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file with a secret."""

    path: str
    mode: int
    """Permission bits, such as 0o600."""


@dataclass(frozen=True, slots=True)
class DataFact:
    """The data directory of one node."""

    node: str
    path: str
    exists: bool = True
    is_writable: bool = True
    owner: str = ""
    user: str = ""
    """The user that asks."""
    mode: int = 0o700
    free_bytes: int = 0
    size_bytes: int = 1
    """Size of the whole file system."""
    file_system: str = ""
    """Its type, such as ext4; empty when unknown."""
    fsync_ms: tuple[float, ...] = ()
    """Milliseconds of each write with fsync; none when it is not writable."""


@dataclass(frozen=True, slots=True)
class PortFact:
    """The address of a node for HTTP."""

    node: str
    address: str
    is_here: bool = True
    """Whether the address is one of this machine."""
    listens: bool = False
    is_node: bool = False
    """Whether the listening program is a brokerha node."""
    is_loopback: bool = True
    has_certificate: bool = False
    is_plain: bool = False
    """Whether the cluster file says that other means keep strangers out."""
    problem: str = ""
    """Why a node could not open its door: a problem with its users, its certificate or another setting."""


@dataclass(frozen=True, slots=True)
class LimitsFact:
    """Limits of the operating system for this process, which nodes would inherit."""

    open_files: int
    """-1: no limit."""
    memory_bytes: int
    """Of the machine or the container, the smaller one; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class DeploymentFact:
    """Files that ``brokerha init`` made."""

    kind: str
    folder: str
    status: dict[str, str]
    """Path to ``up-to-date`` or ``differs``."""
    command: str
    """Command that makes them again."""


@dataclass(frozen=True, slots=True)
class SettingsFact:
    """Settings in force at a master."""

    node: str
    values: dict[str, str]
    """By name of the setting."""
    from_start: frozenset[str] = frozenset()
    """Settings with a new value from the next start of this master on."""


@dataclass(frozen=True, slots=True)
class WorkersFact:
    """Workers of a master."""

    node: str
    in_file: tuple[str, ...]
    listed: frozenset[str]
    """Those that the running master has."""


@dataclass(frozen=True, slots=True)
class ClockFact:
    """Offset of another machine's clock from this one."""

    node: str
    offset_s: float
    """Least offset; 0 when the clock can be right."""


@dataclass(frozen=True, slots=True)
class QueueFact:
    """The broker's state of one queue that a node needs."""

    name: str
    problem: str = ""
    """``missing``, or the broker's words when it differs from the needed one, such as the name of an argument."""
    messages: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class ManagementFact:
    """Facts from the management interface; each is None when it refuses."""

    users: tuple[str, ...] | None = None
    permissions: dict[str, tuple[str, str, str]] | None = None
    """User to (configure, write, read) in the virtual host."""
    topic_permissions: dict[str, tuple[str, str]] | None = None
    """User to (write, read) at the exchange of changes."""
    alarms: tuple[str, ...] | None = None
    policies: dict[str, dict[str, Any]] | None = None
    """``queue`` or ``exchange`` with its name, to the definition of its policy; only for those of brokerha with a policy."""
    listeners: tuple[str, ...] | None = None
    """Addresses with AMQP without TLS."""
    links: dict[tuple[str, str], str] | None = None
    """Link of federation, such as ``("m1 brokerha.sync", "brokerha.sync")``, to ``running``, another state, or why it does not run."""
    partitions: dict[str, tuple[str, ...]] | None = None
    """Node of the broker to the nodes from which a partition still separates it."""


@dataclass(frozen=True, slots=True)
class BrokerFact:
    """State of one broker, as one of its users sees it."""

    where: str
    """``amqp://user@host:5672 vhost '/'``"""
    user: str
    vhost: str
    nodes: tuple[str, ...]
    """Nodes of this machine with this broker and user."""
    is_tls: bool = False
    is_loopback: bool = True
    unreachable: str = ""
    """Why there is no connection."""
    remedy: str = ""
    """What to do about that."""
    refused: str = ""
    """``user``, ``vhost``, or empty; the broker's words are in ``unreachable``."""
    product: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    exchanges: dict[str, str] = field(default_factory=dict)
    """Name to ``missing``, or the broker's words; without exchanges that are as needed."""
    queues: tuple[QueueFact, ...] = ()
    unwritable: dict[str, str] = field(default_factory=dict)
    """Exchanges to which this user cannot publish, with the broker's words."""
    topic_is_open: bool | None = None
    """Whether every routing key can be published to the exchange of changes."""
    blocked: str | None = None
    """Why the broker takes no message; empty when it does, None when it was not tried."""
    guest: str = ""
    """Where guest can log in with its known password: ``here``, an address of this machine, or empty."""
    management: ManagementFact | None = None
    management_problem: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Needs of the nodes with one user from their broker: queues, exchanges that they publish to, and rights."""

    queues: tuple[QueueRow, ...] = ()
    writes: tuple[str, ...] = ()
    rights: Rights | None = None
    """None for a user that several nodes share: no definitions have its rights."""
    topic: TopicRights | None = None
    linked: tuple[str, ...] = ()
    """A master for each other broker of the cluster, from which this broker fetches messages for its nodes."""
    masters: int = 0
    """Masters of the cluster file at this broker; 0 when unknown."""
