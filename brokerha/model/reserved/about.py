r"""Namespaces and settings of repositories, as keys of one reserved table.

    <repository>/namespace/<prefix>     IRI                                  the prefix can be empty
    <repository>/setting/title          a text for people
    <repository>/setting/union          "true": the default graph of queries and updates is the union of all graphs

``put`` and ``delete`` write them like every key, so that the log, fingerprints, copies and backups include them. Every store
requires that the repository exists when a transaction writes such a key, and deletes all of them with the repository.

>>> row_of(namespace_key("main", "foaf"))
('main', 'namespace', 'foaf')
>>> problem_of(b"main/namespace/foaf", b"http://xmlns.com/foaf/0.1/"), problem_of(b"main/setting/color", b"red")
('', "a repository has the settings title and union, not 'color'")
"""

from __future__ import annotations

import re
from typing import Final

from brokerha.model.ids import is_repository_id

TABLE: Final = "urn:brokerha:repositories"
NAMESPACE, SETTING = "namespace", "setting"
TITLE, UNION = "title", "union"
SETTINGS: Final = (TITLE, UNION)
TRUE: Final = b"true"
PREFIX_LIMIT_BYTES: Final = 64
VALUE_LIMIT_BYTES: Final = 2000
_PREFIX: Final = re.compile(r"[^\x00-\x20\x7f:/<>\"{}|^`\\]*\Z")
_IRI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f<>\"{}|^`\\]*\Z")


def namespace_key(repository: str, prefix: str) -> bytes:
    """Return the key of one namespace."""
    return f"{repository}/{NAMESPACE}/{prefix}".encode()


def setting_key(repository: str, name: str) -> bytes:
    """Return the key of one setting."""
    return f"{repository}/{SETTING}/{name}".encode()


def beginning_of(repository: str) -> bytes:
    """Return the prefix of all keys about a repository."""
    return f"{repository}/".encode()


def repository_of(key: bytes) -> str:
    """Return the repository that a key is about."""
    return key.partition(b"/")[0].decode()


def row_of(key: bytes) -> tuple[str, str, str]:
    """Return repository, kind and name of a valid key."""
    repository, kind, name = key.decode().split("/", 2)
    return repository, kind, name


def problem_of(key: bytes, value: bytes | None) -> str:
    """Return the problem with a key of the reserved table and its value (None: it is deleted), or an empty string."""
    try:
        parts = key.decode().split("/", 2)
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return f"a key or value of table {TABLE} is not UTF-8"
    if len(parts) != 3 or not is_repository_id(parts[0]) or parts[1] not in {NAMESPACE, SETTING}:
        return f"a key of table {TABLE} is <repository>/{NAMESPACE}/<prefix> or <repository>/{SETTING}/<name>"
    _, kind, name = parts
    if kind == NAMESPACE:
        return prefix_problem(name) or ("" if text is None else iri_problem(text))
    if name not in SETTINGS:
        return f"a repository has the settings {' and '.join(SETTINGS)}, not {name!r}"
    if text is None:
        return ""
    if name == UNION:
        return "" if value == TRUE else f"the setting {UNION} is true or not there, not {text[:40]!r}"
    is_title = 1 <= len(text.encode()) <= VALUE_LIMIT_BYTES and text.isprintable()
    return "" if is_title else f"a title has 1 to {VALUE_LIMIT_BYTES} bytes in one line"


def prefix_problem(prefix: str) -> str:
    """Return the problem with the prefix of a namespace, or an empty string."""
    if len(prefix.encode()) > PREFIX_LIMIT_BYTES or _PREFIX.match(prefix) is None:
        return f"a prefix has at most {PREFIX_LIMIT_BYTES} bytes, no space and none of : / < > and their like, not {prefix[:80]!r}"
    return ""


def iri_problem(text: str) -> str:
    """Return the problem with the IRI of a namespace, or an empty string."""
    if len(text.encode()) > VALUE_LIMIT_BYTES or _IRI.match(text) is None:
        return f"a namespace is an absolute IRI of at most {VALUE_LIMIT_BYTES} bytes, not {text[:80]!r}"
    return ""
