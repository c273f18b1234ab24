"""Facts that were gathered, and what is wanted of a broker: plain values without judgement, and without a password.

``None`` means that it could not be known; a text that ends in ``_problem`` says why something could not be done, empty if it could.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from brokerha.transports.rights import Rights, TopicRights
from brokerha.transports.topology import QueueRow


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file that holds a secret."""

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
    """Who asks."""
    mode: int = 0o700
    free_bytes: int = 0
    size_bytes: int = 1
    """Of the whole file system."""
    file_system: str = ""
    """Its type, such as ext4; empty when nobody says."""
    fsync_ms: tuple[float, ...] = ()
    """Milliseconds of each write with fsync; none when it cannot be written."""


@dataclass(frozen=True, slots=True)
class PortFact:
    """The address of a node for HTTP."""

    node: str
    address: str
    is_here: bool = True
    """Whether the address is one of this machine."""
    listens: bool = False
    is_node: bool = False
    """Whether who listens is a node of brokerha."""
    is_loopback: bool = True
    has_certificate: bool = False
    is_plain: bool = False
    """Whether the cluster file says that something else keeps others out."""
    problem: str = ""
    """Why a node could not open its door: what is wrong with its users, its certificate or another setting of it."""


@dataclass(frozen=True, slots=True)
class LimitsFact:
    """What the operating system grants this process, whose children nodes would be."""

    open_files: int
    """-1: without a limit."""
    memory_bytes: int
    """Of the machine or the container, the smaller one; 0 when nobody says."""


@dataclass(frozen=True, slots=True)
class DeploymentFact:
    """Files that ``brokerha init`` made."""

    kind: str
    folder: str
    status: dict[str, str]
    """Path to ``up-to-date`` or ``differs``."""
    command: str
    """What makes them again."""


@dataclass(frozen=True, slots=True)
class SettingsFact:
    """What is in force at a master."""

    node: str
    values: dict[str, str]
    """By the names of settings."""
    from_start: frozenset[str] = frozenset()
    """Those that were set to something else, which counts from the next start of this master."""


@dataclass(frozen=True, slots=True)
class ClockFact:
    """How far the clock of another machine is from ours."""

    node: str
    offset_s: float
    """At least so far; 0 when it may be right."""


@dataclass(frozen=True, slots=True)
class QueueFact:
    """One queue that a node needs, as the broker has it."""

    name: str
    problem: str = ""
    """``missing``, or the broker's words when it differs from what is wanted, such as the name of an argument."""
    messages: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class ManagementFact:
    """What the management interface tells; each is None when it refuses."""

    users: tuple[str, ...] | None = None
    permissions: dict[str, tuple[str, str, str]] | None = None
    """User to (configure, write, read) in the virtual host."""
    topic_permissions: dict[str, tuple[str, str]] | None = None
    """User to (write, read) at the exchange of changes."""
    alarms: tuple[str, ...] | None = None
    policies: dict[str, dict[str, Any]] | None = None
    """Name of a queue to the definition of the policy that it follows; only queues of brokerha that follow one."""
    listeners: tuple[str, ...] | None = None
    """Addresses where it takes AMQP without TLS."""
    links: dict[str, str] | None = None
    """Link of federation, such as ``m1 brokerha.sync to brokerha.sync``, to ``running``, another state, or why it does not run."""
    partitions: dict[str, tuple[str, ...]] | None = None
    """Node of the broker to those that it was cut off from and has not come together with."""


@dataclass(frozen=True, slots=True)
class BrokerFact:
    """One broker, as one user of it sees it."""

    where: str
    """``amqp://user@host:5672 vhost '/'``"""
    user: str
    vhost: str
    nodes: tuple[str, ...]
    """The nodes of this machine that use it with this user."""
    is_tls: bool = False
    is_loopback: bool = True
    unreachable: str = ""
    """Why there is no connection."""
    remedy: str = ""
    """What a person does about that."""
    refused: str = ""
    """``user``, ``vhost``, or empty; with the broker's words in ``unreachable``."""
    product: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    exchanges: dict[str, str] = field(default_factory=dict)
    """Name to ``missing``, or what the broker says; none for those that are as wanted."""
    queues: tuple[QueueFact, ...] = ()
    unwritable: dict[str, str] = field(default_factory=dict)
    """Exchanges that this user may not publish to, with what the broker says."""
    topic_is_open: bool | None = None
    """Whether any routing key may be published to the exchange of changes."""
    blocked: str | None = None
    """Why the broker takes no message; empty when it does, None when nobody tried."""
    guest: str = ""
    """Where guest with its known password comes in: ``here``, an address of this machine, or empty."""
    management: ManagementFact | None = None
    management_problem: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What nodes want of their broker, where they come as one user: queues, exchanges that they publish to, and rights."""

    queues: tuple[QueueRow, ...] = ()
    writes: tuple[str, ...] = ()
    rights: Rights | None = None
    """None for a user that several nodes share: no definitions say what it may do."""
    topic: TopicRights | None = None
    linked: tuple[str, ...] = ()
    """A master for each other broker of the cluster, from which this broker fetches what is for its nodes."""
    masters: int = 0
    """Masters of the cluster file at this broker; 0 when nobody said."""
