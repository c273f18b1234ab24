"""The environment laid over the cluster file: one variable for each key, and files that hold secrets.

    BROKERHA_CLUSTER_ROUND_TIMEOUT_MS=800            the key round-timeout-ms of [cluster]
    BROKERHA_MASTER_M1_HTTP=0.0.0.0:7201             the key http of the master m1
    BROKERHA_CLUSTER_BROKER_FILE=/run/secrets/url    the value is in a file (its last line break does not count)

A variable of this form that names no key is an error, like a misspelt key of the file. Other variables that begin with
``BROKERHA_`` are not for the cluster file (``BROKERHA_URL``) and are ignored. The environment cannot change the ids of nodes: a
reader of the file must see which nodes take part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerha.nodes.config.file import CLUSTER, NODE_SECTIONS, Document, Table, Written
from brokerha.nodes.config.settings import Setting, fail, nearest

PREFIX = "BROKERHA"
FILE_SUFFIX = "_FILE"
FIXED = frozenset({"id"})
"""Keys that the environment cannot change."""
SECRET_LIMIT_BYTES = 65536

# Kubernetes sets such variables for every service; a service named brokerha-master must not stop the masters.
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)(_.*)?\Z|_PORT(_\d+_(TCP|UDP)(_.*)?)?\Z")


def variable(section: str, key: str, node: str = "") -> str:
    """Return the name of the variable of a key; for nodes it includes their id.

    >>> variable("master", "http", "m-1")
    'BROKERHA_MASTER_M_1_HTTP'
    """
    parts = (PREFIX, section, node, key) if node else (PREFIX, section, key)
    return "_".join(part.replace("-", "_") for part in parts).upper()


def lay_over(document: Document, environ: Mapping[str, str]) -> None:
    """Replace the settings that the environment sets. Raises ConfigurationError."""
    places = _places(document)
    prefixes = tuple(f"{PREFIX}_{section.upper()}_" for section in (CLUSTER, *NODE_SECTIONS))
    used: dict[tuple[int, str], str] = {}
    for name in sorted(environ):
        if not name.startswith(prefixes):
            continue
        from_file = name not in places and name.removesuffix(FILE_SUFFIX) in places
        found = places.get(name.removesuffix(FILE_SUFFIX) if from_file else name)
        if found is None:
            if not _KUBERNETES.search(name):
                _refuse(name, places, document)
            continue
        table, row = found
        where = f"environment variable {name}"
        other = used.setdefault((id(table), row.name), name)
        if other != name:
            fail(where, f"{other} sets the same key", "set one of the two")
        text = environ[name]
        if from_file:
            text, where = _secret(Path(text), where), f"{text} (named by {where})"
        table.written[row.name] = Written(row.from_text(text, where), where)


def _places(document: Document) -> dict[str, tuple[Table, Setting]]:
    """Return the setting and the section of each variable."""
    cluster = document.cluster
    places = {variable(CLUSTER, row.name): (cluster, row) for row in cluster.known.values()}
    for table in document.nodes:
        for row in table.known.values():
            if row.name not in FIXED:
                places[variable(table.section, row.name, str(table["id"] or ""))] = (table, row)
    return places


def _refuse(name: str, places: Mapping[str, Any], document: Document) -> None:
    """Refuse a variable with the name that was probably meant, compared without the common prefix, which makes all names alike."""
    where = f"environment variable {name}"
    section = name.split("_")[1]
    start = len(f"{PREFIX}_{section}_")
    alike = {_as_key(known[start:]): known for known in places if known.startswith(name[:start])}
    if not alike:
        fail(where, f"{document.path} has no {section.lower()}", "unset it")
    close = nearest(_as_key(name[start:]), alike)
    remedy = f"write {alike.get(close) or 'one of ' + ', '.join(alike.values())}"
    fail(where, "no key of the cluster file has this name", remedy)


def _as_key(text: str) -> str:
    """Return a part of the name of a variable, spelt as in the file."""
    return text.lower().replace("_", "-")


def _secret(path: Path, where: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SECRET_LIMIT_BYTES + 1)
        if len(content) > SECRET_LIMIT_BYTES:
            fail(where, f"{path} is longer than {SECRET_LIMIT_BYTES} bytes", "name a file that holds the value alone")
        return content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        fail(where, f"{path} is not UTF-8", "save the value as UTF-8 text")
    except OSError as error:
        fail(where, f"{path} cannot be read ({error.strerror})", "name a file that this user may read")
