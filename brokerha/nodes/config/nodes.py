"""Keys of the sections ``[[master]]``, ``[[backup]]`` and ``[[worker]]`` of the cluster file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from brokerha.nodes.config.keys import Key

NodeName = Annotated[
    str,
    Key(
        "Name of this node, unique in the whole cluster; never used again with other data. 1 to 32 of a-z, 0-9 and -.",
        example='"m1"',
    ),
]
MasterName = Annotated[str, Key("The master that this node belongs to.", example='"m1"')]
HttpAddress = Annotated[
    str, Key("host:port where this node listens for HTTP; without it the node has no HTTP door.", default_text="none")
]


@dataclass(frozen=True, slots=True)
class MasterEntry:
    """One ``[[master]]``."""

    id: NodeName
    http: HttpAddress = ""
    broker: Annotated[
        str,
        Key(
            "Broker where the inbox of this master and of its workers lives. Not with embedded://.",
            default_text="the cluster's",
        ),
    ] = field(default="", repr=False)

    probe: Annotated[
        str,
        Key(
            "The worker of this master that executes transactions, if it is always the same one.",
            default_text="the workers in sync take turns",
            example='"w1"',
        ),
    ] = ""

    role = "master"


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """One ``[[backup]]``: a standby process of a master, which holds its journal and takes over when its primary is lost."""

    id: NodeName
    master: MasterName
    http: HttpAddress = ""

    role = "backup"


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One ``[[worker]]``: a full copy of the data. One worker of a master executes, the others apply what it did."""

    id: NodeName
    master: MasterName
    http: HttpAddress = ""
    readable: Annotated[bool, Key("Whether masters send it reads; without them it only follows the log.")] = True

    role = "worker"


NodeEntry = MasterEntry | BackupEntry | WorkerEntry
