"""The least rights that a node needs in the virtual host of its cluster, as the patterns that RabbitMQ takes.

    Rights.configure     what it declares and deletes: its own queues, exchanges, queues of its transactions
    Rights.write         what it publishes to, and queues that it binds
    Rights.read          what it consumes, and exchanges that it binds queues to

Patterns match whole names. A process of a master may take over, so each of them has the rights of the master. An app needs no
right to configure anything: `app_rights`. Queues of transactions are the master's: each begins with its name.

>>> print(rights_of("w1", "worker").read.replace(chr(92), ""))
^(brokerha.(sync|data|rejected)|brokerha.w1.(sync|data))$
"""

from __future__ import annotations

import re
from typing import NamedTuple

from brokerha.model.ids import NodeId
from brokerha.model.tx_queues import TX_QUEUE_PREFIX

WORKER_ROLE = "worker"
_EXCHANGES = r"brokerha\.(sync|data|writes|reads|rejected|changes)"
_DEFAULT_EXCHANGE = r"amq\.default"


class Rights(NamedTuple):
    """Three patterns, as ``rabbitmqctl set_permissions`` and a definitions file have them."""

    configure: str
    write: str
    read: str


def rights_of(process: NodeId, role: str, master: NodeId = "") -> Rights:
    """Rights of a worker, of a master, or of one process of a master (``master`` names it; itself without)."""
    own = rf"brokerha\.{re.escape(process)}\.(sync|data)"
    rejected = r"brokerha\.rejected"
    if role == WORKER_ROLE:
        return Rights(
            _whole(_EXCHANGES, own, rejected),
            _whole(r"brokerha\.(sync|data|rejected)", own),
            _whole(r"brokerha\.(sync|data|rejected)", own),
        )
    name = re.escape(master or process)
    of_apps = rf"brokerha\.{name}\.(writes|reads)|brokerha\.(writes|reads)\.any"
    stream = rf"brokerha\.{name}\.log"
    of_transactions = rf"{re.escape(TX_QUEUE_PREFIX)}{name}\..*"
    return Rights(
        _whole(_EXCHANGES, own, rejected, of_apps, stream, of_transactions),
        _whole(_EXCHANGES, _DEFAULT_EXCHANGE, own, of_apps, stream),
        _whole(_EXCHANGES, own, of_apps, stream, of_transactions),
    )


def app_rights() -> Rights:
    """Rights of an app that writes, and reads through the broker; answers come to it without any right."""
    return Rights(_whole(), _whole(r"brokerha\.(writes|reads)"), _whole())


def _whole(*patterns: str) -> str:
    return f"^({'|'.join(patterns)})$"
