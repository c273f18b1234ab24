"""The cluster's own certificate authority, and a certificate for each door and each other named server.

    cluster file ──> servers_of ──> certificates_plan ──> <ca>/ca.pem, ca.key           ten years; its key can make any certificate
                                                     └──> ID.pem, ID.key of each        valid for --days; P-256

An existing certificate stays while it is good: of this authority, for these names, with its key, and not in the last third of its
time. So the same files give the same plan, a check warns in time, and nothing is replaced without need. The key of the authority is
needed only to make a certificate. Needs cryptography, from the extra ``brokerha[certificates]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from brokerha.deploying.files import File, Plan, read_secret
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import is_node_id
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import http_address

AUTHORITY_DAYS: Final = 3650
LEFT: Final = 1 / 3
"""Share of its time below which a certificate must be renewed."""
EARLIER: Final = timedelta(hours=1)
"""Certificates are valid from a moment ago on, for machines whose clocks are slow."""

_LOOPBACK: Final = "127.0.0.1"

Names = Mapping[str, Sequence[str]]
"""By node, or by the name of another server: the hosts under which clients reach it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server with a certificate."""

    name: str
    hosts: tuple[str, ...]
    """Names and addresses, sorted."""
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate with its key, as PEM."""

    certificate: x509.Certificate
    key: str

    @property
    def text(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def parse_names(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse options with hosts by node or other server. Raises ConfigurationError.

    >>> parse_names(["m1=m1.example.org,10.0.0.1", "rabbitmq=broker.example.org"])
    {'m1': ['m1.example.org', '10.0.0.1'], 'rabbitmq': ['broker.example.org']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, hosts = text.partition("=")
        listed = [host.strip() for host in hosts.split(",")]
        if not is_node_id(name) or not all(map(_is_host, listed)):
            raise ConfigurationError(f"--name {text}: write ID=HOST,HOST, such as m1=m1.example.org,10.0.0.1")
        found.setdefault(name, []).extend(listed)
    return found


def servers_of(config: ClusterConfig, names: Names, folder: Path) -> list[Server]:
    """Return each node with a door, with its address and other names, then the other named servers.

    Files of nodes are at the paths of the cluster file, all others in ``folder``. Raises ConfigurationError for an unnamed node.
    """
    found = []
    for node in config.nodes:
        if not node.http:
            if node.id in names:
                raise ConfigurationError(
                    f"{config.path}: {node.id} has no http address, so it needs no certificate: leave it out of --name"
                )
            continue
        host, _ = http_address(node.http)
        is_everywhere = host in {"", "0.0.0.0", "::"}  # noqa: S104  (nobody listens here)
        # Then commands on its machine ask it at loopback.
        hosts = {_LOOPBACK if is_everywhere else host, *names.get(node.id, ())}
        if is_everywhere and node.id not in names:
            raise ConfigurationError(
                f"{node.id} listens at all addresses ({node.http}): say by which names clients reach it: --name {node.id}=HOST,HOST"
            )
        found.append(_server(config, node.id, hosts, folder))
    others = [name for name in names if name not in {node.id for node in config.nodes}]
    return found + [
        Server(name, tuple(sorted(set(names[name]))), folder / f"{name}.pem", folder / f"{name}.key") for name in others
    ]


def _server(config: ClusterConfig, node: str, hosts: set[str], folder: Path) -> Server:
    certificate, key = (
        config.path.absolute().parent / text.replace("{id}", node) if text else folder / f"{node}.{kind}"
        for text, kind in ((config.http_certificate, "pem"), (config.http_key, "key"))
    )
    return Server(node, tuple(sorted(hosts)), certificate, key)


def certificates_plan(
    cluster: str, servers: Sequence[Server], folder: Path, now: datetime, days: int, shown: Sequence[str] = ()
) -> Plan:
    """Plan all files, keeping good existing ones; ``now`` has a time zone. Raises ConfigurationError.

    ``shown`` are next steps that only the caller knows. Servers must not share files.
    """
    if len({path for server in servers for path in (server.certificate, server.key)}) < 2 * len(servers):
        raise ConfigurationError(
            "http-certificate and http-key name the same file for two nodes, or for both: write {id} into their names"
        )
    at, key_at = folder / "ca.pem", folder / "ca.key"
    kept = _read(at, key_at)
    authority = kept if kept is not None and _has_time(kept.certificate, now) else _authority(cluster, now)
    files = [File(at, authority.text)]
    if authority.key:
        key = _private_key(authority.key)
        if key is None or key.public_key() != authority.certificate.public_key():
            raise ConfigurationError(
                f"{key_at} is not the key of {at}: bring the right one back, or move both away for a new authority"
            )
        files.append(File(key_at, authority.key, is_secret=True))
    ends = []
    for server in servers:
        pair = _read(server.certificate, server.key)
        if pair is None or not _is_good(pair, server, authority.certificate, now):
            if not authority.key:
                raise ConfigurationError(
                    f"{server.name} needs a certificate, and {key_at} is not there: bring it back, or move {at} away for a new authority"
                )
            pair = _issued(authority, server, now, days)
        files += [File(server.certificate, pair.text), File(server.key, pair.key, is_secret=True)]
        ends.append(pair.certificate.not_valid_after_utc - _third(pair.certificate))
    steps = [
        *shown,
        "copy to each machine the two files of each of its nodes, readable by the user that runs them; a door that is open takes them by itself",
        f"give clients {at}, and say where it lies: BROKERHA_CA_FILE=…/ca.pem",
        f"keep {key_at} where no node runs: whoever has it can pretend to be any of them",
    ]
    if ends:
        steps.append(f"make them anew after {min(ends):%d %B %Y}: brokerha init certificates --check says when, --force does it")
    return Plan(tuple(files), next_steps=tuple(steps))


def _authority(cluster: str, now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"brokerha {cluster}"[:64])])
    usage = x509.KeyUsage(
        key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _Pair(builder.sign(key, hashes.SHA256()), _pem(key))


def _issued(authority: _Pair, server: Server, now: datetime, days: int) -> _Pair:
    signer = _private_key(authority.key)
    assert signer is not None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server.name[:64])])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(name, authority.certificate.subject, key, now, days)
        .add_extension(x509.SubjectAlternativeName(_alternatives(server.hosts)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
    )
    return _Pair(builder.sign(signer, hashes.SHA256()), _pem(key))


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _is_good(pair: _Pair, server: Server, authority: x509.Certificate, now: datetime) -> bool:
    key, certificate = _private_key(pair.key), pair.certificate
    if key is None or key.public_key() != certificate.public_key() or not _has_time(certificate, now):
        return False
    try:
        certificate.verify_directly_issued_by(authority)
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return set(named) == set(_alternatives(server.hosts))


def _has_time(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - _third(certificate)


def _third(certificate: x509.Certificate) -> timedelta:
    return (certificate.not_valid_after_utc - certificate.not_valid_before_utc) * LEFT


def _read(certificate: Path, key: Path) -> _Pair | None:
    """Read an existing pair, with an empty key if that is missing; None without a valid certificate."""
    try:
        found = x509.load_pem_x509_certificate(read_secret(certificate).encode())
    except ValueError:
        return None
    text = read_secret(key)
    return _Pair(found, f"{text}\n" if text else "")


def _private_key(text: str) -> ec.EllipticCurvePrivateKey | None:
    try:
        found = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, ec.EllipticCurvePrivateKey) else None


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [x509.DNSName(host) if (address := _address(host)) is None else x509.IPAddress(address) for host in hosts]


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_host(text: str) -> bool:
    if _address(text) is not None:
        return True
    labels = text.removeprefix("*.").split(".")
    return len(text) <= 253 and all(
        1 <= len(label) <= 63
        and label.isascii()
        and label.replace("-", "").isalnum()
        and not label.startswith("-")
        and not label.endswith("-")
        for label in labels
    )
