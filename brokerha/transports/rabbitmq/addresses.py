"""Broker URLs, parsed once into plain values for kombu, py-amqp and pika.

    amqp://user:password@host:5672/vhost                 RabbitMQ
    amqps://host/vhost?cacertfile=ca.pem&certfile=…      RabbitMQ over TLS; chain and host name are verified
    amqp://a/orders;amqp://b/orders                      tried one after another, while the first does not answer
    embedded://name                                      the broker of this process with this name

The query takes RabbitMQ's own names cacertfile, certfile and keyfile. A missing or empty virtual host is ``/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from socket import gaierror
from ssl import SSLCertVerificationError
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from brokerha.model.errors import ConfigurationError
from brokerha.ports.transport import Problem

NOBODY: Final = "guest"
"""The account that every RabbitMQ has from the start: it identifies no user."""

EMBEDDED_SCHEME = "embedded"
_PORTS = {"amqp": 5672, "amqps": 5671}
_TLS_FILES = ("cacertfile", "certfile", "keyfile")


@dataclass(frozen=True, slots=True)
class Address:
    """One broker, one virtual host, one user."""

    scheme: str
    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls_files: dict[str, str] = field(default_factory=dict)
    """Some of ``cacertfile``, ``certfile``, ``keyfile``, with their paths."""

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "amqps"

    def __str__(self) -> str:
        """Return the address without the password, for reasons and logs."""
        return f"{self.scheme}://{self.user}@{self.host}:{self.port} vhost {self.vhost!r}"


def is_embedded(url: str) -> bool:
    """Tell whether the URL names a broker of this process."""
    return url.startswith(f"{EMBEDDED_SCHEME}://")


def parse_addresses(url: str) -> tuple[Address, ...]:
    """Return the brokers of an AMQP URL, in order. Raises ConfigurationError."""
    return tuple(_parse(each.strip()) for each in url.split(";") if each.strip()) or (_parse(url),)


NO_BROKER: Final = "start the broker, or correct its address"
CORRECT_CERTIFICATES: Final = "correct cacertfile or the host name in its address, or give the broker a certificate for this name"


def explain_os_error(error: OSError, address: Address) -> Problem:
    """Explain a broker that cannot be reached."""
    where = f"{address.host}:{address.port}"
    if isinstance(error, SSLCertVerificationError):
        return Problem(f"the certificate of {where} does not hold: {error.verify_message}", CORRECT_CERTIFICATES)
    if isinstance(error, ConnectionRefusedError):
        return Problem(f"nothing listens at {where}", NO_BROKER)
    if isinstance(error, gaierror):
        return Problem(f"the host name {address.host!r} cannot be resolved", NO_BROKER)
    if isinstance(error, TimeoutError):
        return Problem(f"no answer from {where}", NO_BROKER)
    return Problem(f"{type(error).__name__}: {error} ({where})", NO_BROKER)


def refused(said: str, address: Address) -> Problem:
    """Explain a running broker that refuses this address, in its own words."""
    remedy = "correct the user, the password or the virtual host of its address, or give the user its rights"
    return Problem(f"the broker refuses {address}: {said}".rstrip("."), remedy)


def _parse(url: str) -> Address:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise ConfigurationError(f"broker URL {_shown(url)!r}: write amqp://…, amqps://… or embedded://…")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise ConfigurationError(f"broker URL {_shown(url)!r}: the port is no number below 65536") from None
    if not parts.hostname:
        raise ConfigurationError(f"broker URL {_shown(url)!r}: there is no host in it")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(_TLS_FILES))
    if unknown:
        raise ConfigurationError(f"broker URL {_shown(url)!r}: unknown {unknown[0]!r}; known are {', '.join(_TLS_FILES)}")
    return Address(
        parts.scheme,
        parts.hostname,
        port,
        unquote(parts.path.removeprefix("/")) or "/",
        unquote(parts.username or NOBODY),
        unquote(parts.password or "guest"),
        options,
    )


def _shown(url: str) -> str:
    """Return the URL without anything that could be a password: before the host, or among the options."""
    scheme, _, rest = url.partition("://")
    place, mark, _ = rest.rpartition("@")[2].partition("?")
    before, after = "…@" if "@" in rest else "", "?…" if mark else ""
    return f"{scheme}://{before}{place}{after}" if rest else scheme.partition("?")[0]
