"""As who a client speaks to HTTP doors, from the environment: secrets never stand among the arguments of a command.

    BROKERHA_TOKEN or BROKERHA_TOKEN_FILE                          a token
    BROKERHA_USER and BROKERHA_PASSWORD or BROKERHA_PASSWORD_FILE  a name and a password, where there is no token
    BROKERHA_CA_FILE                                               authorities that sign the certificates of doors, besides those of this machine

A secret is sent over https, or to this machine. To another one over plain HTTP it is sent only where BROKERHA_PLAIN_HTTP=allowed says that the way there is
private.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from brokerha.model.errors import ConfigurationError
from brokerha.model.outside.hosts import is_loopback


def identity_headers(environ: Mapping[str, str], urls: Iterable[str] = ()) -> dict[str, str]:
    """The header that says who asks at these URLs; none without a user.

    Raises ConfigurationError for a file that cannot be read, and for a URL to which nobody should send a secret.
    """
    headers = _identity(environ)
    open_ones = [url for url in urls if not _is_private(url)] if headers else []
    if open_ones and environ.get("BROKERHA_PLAIN_HTTP") != "allowed":
        raise ConfigurationError(
            f"{open_ones[0]} is not https, and anyone on the way there could read the password or token: write https://…, or "
            "BROKERHA_PLAIN_HTTP=allowed if the way there is private"
        )
    return headers


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def trusted(environ: Mapping[str, str]) -> ssl.SSLContext:
    """By whom certificates of doors may be signed; host names are checked. Raises ConfigurationError for a file that is none."""
    context = ssl.create_default_context()
    if path := environ.get("BROKERHA_CA_FILE", ""):
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"BROKERHA_CA_FILE = {path}: {reason}: name a PEM file with the authority's certificate") from None
    return context


def _identity(environ: Mapping[str, str]) -> dict[str, str]:
    if token := _secret(environ, "BROKERHA_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := environ.get("BROKERHA_USER", ""):
        pair = f"{user}:{_secret(environ, 'BROKERHA_PASSWORD')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    return {}


def _secret(environ: Mapping[str, str], name: str) -> str:
    path = environ.get(f"{name}_FILE", "")
    if environ.get(name) or not path:
        return environ.get(name, "")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError(f"{name}_FILE = {path}: cannot be read: name a file that this user may read") from None
