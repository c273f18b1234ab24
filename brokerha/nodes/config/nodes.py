"""The sections ``[[master]]``, ``[[backup]]`` and ``[[worker]]`` of the cluster file: the table of their settings."""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.nodes.config.settings import required, setting

_ID = (
    "Name of this node, unique in the whole cluster; never used again with other data. 1 to 32 of a-z, 0-9 and -.",
    '"m1"',
)
_MASTER = ("The master that this node belongs to.", '"m1"')
_HTTP = "host:port where this node listens for HTTP; without it the node has no HTTP door."


@dataclass(frozen=True, slots=True)
class MasterEntry:
    """One ``[[master]]``."""

    id: str = required(*_ID)
    http: str = setting("", _HTTP, default_text="none")
    broker: str = setting(
        "",
        "Broker where the inbox of this master and of its workers lives. Not with embedded://.",
        default_text="the cluster's",
        is_secret=True,
    )
    probe: str = setting(
        "",
        "The worker of this master that executes transactions, if it is always the same one.",
        default_text="the workers in sync take turns",
        example='"w1"',
    )

    role = "master"


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """One ``[[backup]]``: a standby process of a master. It holds the journal and takes over when its primary is lost."""

    id: str = required(*_ID)
    master: str = required(*_MASTER)
    http: str = setting("", _HTTP, default_text="none")

    role = "backup"


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One ``[[worker]]``: a full copy of the data. One worker of a master executes, the others apply its effects."""

    id: str = required(*_ID)
    master: str = required(*_MASTER)
    http: str = setting("", _HTTP, default_text="none")
    readable: bool = setting(True, "Whether masters send it reads; without them it only follows the log.")

    role = "worker"


NodeEntry = MasterEntry | BackupEntry | WorkerEntry
