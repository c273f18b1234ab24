"""As who a client speaks to HTTP doors, from the environment: secrets never stand among the arguments of a command.

    BROKERHA_TOKEN or BROKERHA_TOKEN_FILE                          a token
    BROKERHA_USER and BROKERHA_PASSWORD or BROKERHA_PASSWORD_FILE  a name and a password, where there is no token
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from brokerha.model.errors import ConfigurationError


def identity_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """The header that says who asks; none without a user. Raises ConfigurationError for a file that cannot be read."""
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
