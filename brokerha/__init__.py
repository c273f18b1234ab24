"""brokerha: the same data on many nodes, writable everywhere, over RabbitMQ.

    import brokerha

    with brokerha.connect("http://127.0.0.1:7201") as db:
        db.update("main", "INSERT DATA { <urn:a> <urn:b> 1 }")
        db.query("main", "ASK { <urn:a> <urn:b> 1 }")                  # True

`connect` gives a `Session`, a `Client` that reads its own writes (client/client.py); `errors` holds every error that
is raised on purpose, on one page. The folders, from the outside inwards:

    cli, embedded, simulator    commands; a whole cluster in one process; the same in a simulated world
    aio                         the client for asyncio
    http                        the front door of a node
    nodes                       what one process holds, and the loop that drives it
    journal, transports, stores, client     disk, wire, data; what programs import
    local_reads                 reads of a door that go to workers of the same machine without the broker
    ingress                     what comes from outside is judged before a parser sees it
    ports                       what nodes need from the world
    master; sync, replication   the cores: state machines that do no input or output
    model                       the words that all of them share

Importing this module loads none of them; names are looked up when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brokerha.model import errors

if TYPE_CHECKING:
    from brokerha.client import Client, Session
    from brokerha.ports.wire import Wire

    __version__: str

__all__ = ["Client", "Session", "__version__", "connect", "errors"]


def connect(address: str, *, timeout: float = 30.0, ack: str = "applied", apart: str = "wait") -> Session:
    """Connect to a cluster; close the result, or use it as a context manager.

    ``address`` is ``http://host:port`` of any node (several, separated by commas, share the writes and stand in for each other), an ``amqp://`` URL
    of the cluster's broker, or the path of a cluster file (``….toml``), whose broker is then used. ``timeout`` is in seconds
    and, like ``ack`` and ``apart`` (client/client.py), holds for calls that do not say. Raises ConfigurationError for an address that is none of these.
    """
    from brokerha.client.client import Session

    return Session(_wire(address), timeout, ack, apart)


def _wire(address: str) -> Wire:
    if address.startswith(("http://", "https://")):
        from brokerha.client.http_wire import HttpWire

        return HttpWire(address)
    if address.startswith(("amqp://", "amqps://")):
        from brokerha.transports.pika_wire import AmqpWire

        return AmqpWire(address)
    if address.endswith(".toml"):
        return _wire_of_file(address)
    raise errors.ConfigurationError(
        "this is no address of a cluster: write http://host:port, amqp://user:password@host:port/vhost, or the path of a"
        " cluster file that ends in .toml"
    )


def _wire_of_file(path: str) -> Wire:
    import os
    from pathlib import Path

    from brokerha.nodes.config import load_config

    config = load_config(Path(path), os.environ)
    if not config.is_embedded:
        return _wire(config.broker)
    urls = list(config.http_urls().values())
    if not urls:
        raise errors.ConfigurationError(
            f'{path}: an embedded cluster is reached over HTTP: give a master a line such as http = "127.0.0.1:7201"'
        )
    return _wire(",".join(urls))


def __getattr__(name: str) -> Any:
    if name in {"Client", "Session"}:
        from brokerha import client

        return getattr(client, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("brokerha")
    raise AttributeError(f"module 'brokerha' has no attribute {name!r}")
