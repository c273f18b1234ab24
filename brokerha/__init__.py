"""brokerha: the same data on many nodes, writable everywhere, over RabbitMQ.

    import brokerha

    with brokerha.connect("http://127.0.0.1:7201") as db:
        db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
        db.query("main", "ASK { <urn:a> <urn:b> 1 }")                  # True

`connect` gives a `Session`, a `Client` that sees its own writes (client/client.py). `errors` holds every error that brokerha raises
on purpose. The other names are for annotations. The folders, from the outside inwards; the docstring of each is its map:

    cli/            the command line; __main__.py: the same by ``python -m brokerha``
    programs/       names of the programs that are built on the rest
    py.typed        marks the package as typed, for type checkers
    spark/          jobs on Spark over the log
    doctor/         diagnosis of a machine, its broker and its nodes
    aio.py          the client for asyncio
    embedded.py     a whole cluster in one process
    errors.py       all errors under one name, for programs that catch them
    pipeline/       the log as data: rows, archives, reports
    deploying/      deployment files made from the cluster file
    http/           the front door of a node
    nodes/          the parts of one process, and the loop that drives them
    log/            the durable record of a master
    transports/     the wire
    stores/         the data of a worker
    client/         the API that programs import
    local_reads/    reads that a door sends to workers of its machine without the broker
    ingress/        checks of outside input before a parser reads it
    ports/          interfaces of a node to the world
    master/         CORE: one master, composed of the cores below; state machines without input or output
    sync/           CORE: masters agree on one order
    transactions/   CORE: transactions over several stores, step by step
    replication/    CORE: workers and backups receive the agreed log
    following/      CORE: how a follower catches up with a log
    model/          common types of all folders

Importing this module loads none of them; a name is looked up at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from brokerha import errors
from brokerha.model import VERSION

if TYPE_CHECKING:
    from brokerha.client.calls import Consumed
    from brokerha.client.client import Client, Session
    from brokerha.client.exporting import Export
    from brokerha.client.large import LargeTransaction
    from brokerha.client.loading import Loaded
    from brokerha.client.outcomes import Written
    from brokerha.client.pipeline import Pipeline
    from brokerha.client.reads import BlankNode, Iri, Literal, QueueMessage, Rows, Solutions, Triples
    from brokerha.client.transactions import Committed, Transaction
    from brokerha.model.ids import Xid
    from brokerha.ports.wire import Wire

__version__ = VERSION
__all__ = [
    "BlankNode", "Client", "Committed", "Consumed", "Export", "Iri", "LargeTransaction", "Literal", "Loaded", "Pipeline", "QueueMessage",
    "Rows", "Session", "Solutions", "Transaction", "Triples", "Written", "Xid", "__version__", "connect", "errors",
]  # fmt: skip
_HOMES = {
    "brokerha.client.calls": ("Consumed",),
    "brokerha.client.client": ("Client", "Session"),
    "brokerha.client.exporting": ("Export",),
    "brokerha.client.large": ("LargeTransaction",),
    "brokerha.client.loading": ("Loaded",),
    "brokerha.client.outcomes": ("Written",),
    "brokerha.client.pipeline": ("Pipeline",),
    "brokerha.client.reads": ("BlankNode", "Iri", "Literal", "QueueMessage", "Rows", "Solutions", "Triples"),
    "brokerha.client.transactions": ("Committed", "Transaction"),
    "brokerha.model.ids": ("Xid",),
}
"""Home module of each name that is looked up at its first use."""


def connect(address: str, *, timeout: float = 30.0, ack: str = "applied", apart: str = "wait", token: str = "") -> Session:
    """Connect to a cluster; close the result, or use it as a context manager.

    ``address`` is ``http://host:port`` of any node (several, separated by commas, share the writes and replace each other), an
    ``amqp://`` URL of the cluster's broker, or the path of a cluster file (``….toml``), whose broker is then used. ``timeout``
    (seconds), ``ack`` and ``apart`` (client/client.py) are the defaults of calls. ``token`` is that of the user over HTTP; without it
    the user in the URL counts (``http://user:password@host:port``), then the environment. Raises ConfigurationError for any other
    address, InvalidRequest for a token beside a user in the URL.
    """
    from brokerha.client.client import Session

    return Session(_wire(address, token), timeout, ack, apart)


def _wire(address: object, token: str = "") -> Wire:
    # A path object, or None, gets the same error text as a wrong string.
    address = str(address)
    if token and "://" in address and ("@" in address or address.startswith("amqp")):
        raise errors.InvalidRequest(
            "a token is for HTTP without a user in the URL; over AMQP the URL names the user: amqp://user:password@…"
        )
    if address.startswith(("http://", "https://")):
        from brokerha.client.http_wire import HttpWire

        return HttpWire(address, token)
    if address.startswith(("amqp://", "amqps://")):
        from brokerha.transports.client.wire import AmqpWire

        return AmqpWire(address)
    if address.endswith(".toml"):
        return _wire_of_file(address, token)
    raise errors.ConfigurationError(
        "this is no address of a cluster: write http://host:port, amqp://user:password@host:port/vhost, or the path of a"
        " cluster file that ends in .toml"
    )


def _wire_of_file(path: str, token: str) -> Wire:
    import os
    from pathlib import Path

    from brokerha.nodes.config.cluster import load_config

    config = load_config(Path(path), os.environ)
    if not config.is_embedded:
        return _wire(config.broker, token)
    urls = list(config.http_urls().values())
    if not urls:
        raise errors.ConfigurationError(
            f'{path}: an embedded cluster is reached over HTTP: give a master a line such as http = "127.0.0.1:7201"'
        )
    return _wire(",".join(urls), token)


if not TYPE_CHECKING:  # A type checker would otherwise accept any name.

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module 'brokerha' has no attribute {name!r}")
