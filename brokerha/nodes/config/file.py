"""The cluster file as text: sections, values, and the place of each value.

    document = read_document(Path("cluster.toml"), sections)
    document.cluster["broker"]          "amqp://…"
    document.cluster.where("broker")    "cluster.toml:3"

Any problem is one ConfigurationError whose text begins with the place (``file:line``, or the environment variable) and ends with
the remedy. The parser of the standard library gives no line numbers, so this module looks for section heads and ``key =``. A file
with unusual forms of TOML (inline tables, dotted keys) is read as well; an error then names the line of the section or the first
line.

Only single settings are checked here: known name, type, bounds, choices. Rules between values are in rules.py. The text of an
error never shows the value of ``broker``, which can hold a password.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from brokerha.nodes.config.settings import Setting, fail, nearest

CLUSTER = "cluster"
NODE_SECTIONS = ("master", "backup", "worker")
_FORMS = ("[cluster]", "[[master]]", "[[backup]]", "[[worker]]")

_HEAD = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}")
_ASSIGNMENT = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""")
_PARSER_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

Sections = Mapping[str, Mapping[str, Setting]]
"""Settings of each section."""


class Written(NamedTuple):
    """A value and its place."""

    value: Any
    where: str


@dataclass(slots=True)
class Table:
    """One section of the file: the cluster, or one node."""

    section: str
    head: str
    """Place where the section begins."""
    known: Mapping[str, Setting]
    written: dict[str, Written] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return the value of a setting, or its default when it is not written."""
        return self.written[name].value if name in self.written else self.known[name].default

    def where(self, *names: str) -> str:
        """Return the place of the first of these settings that is written, or else that of the section."""
        return next((self.written[name].where for name in names if name in self.written), self.head)


@dataclass(frozen=True, slots=True)
class Document:
    """The whole file; each value has the type and the bounds of its setting."""

    path: Path
    cluster: Table
    nodes: tuple[Table, ...]
    """In the order of the file: masters, backups, workers."""

    def of(self, section: str) -> list[Table]:
        """Return the nodes of a section."""
        return [table for table in self.nodes if table.section == section]


class _Places:
    """Line numbers of section heads and of keys."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._heads: dict[tuple[str, int], int] = {}
        self._keys: dict[tuple[str, int, str], int] = {}
        counts: dict[str, int] = {}
        section, number = "", 0
        for line, content in enumerate(text.splitlines(), 1):
            if head := _HEAD.match(content):
                section = head[1].strip("\"' ")
                number = counts.get(section, 0)
                counts[section] = number + 1
                self._heads[section, number] = line
            elif assignment := _ASSIGNMENT.match(content):
                self._keys.setdefault((section, number, assignment[1]), line)

    def of_section(self, section: str, number: int = 0) -> str:
        return f"{self._name}:{self._heads.get((section, number), 1)}"

    def of_key(self, section: str, number: int, key: str) -> str:
        line = self._keys.get((section, number, key))
        return f"{self._name}:{line}" if line else self.of_section(section, number)


def read_document(path: Path, sections: Sections) -> Document:
    """Read and check the file, value by value. Raises ConfigurationError."""
    name = str(path)
    text = _read_text(path, name)
    places = _Places(name, text)
    content = _parse(text, name)
    _check_sections(content, sections, places)
    cluster = _table(CLUSTER, 0, content[CLUSTER], sections, places)
    nodes = (
        _table(section, number, values, sections, places)
        for section in NODE_SECTIONS
        for number, values in enumerate(content.get(section, []))
    )
    return Document(path, cluster, tuple(nodes))


def _read_text(path: Path, name: str) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fail(f"{name}:{line}", f"byte 0x{error.object[error.start]:02x} is not UTF-8", "save the file as UTF-8")
    except OSError as error:
        fail(name, f"the cluster file cannot be read ({error.strerror})", "write its path after -c")


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PARSER_LINE.search(str(error))
        line = int(place[1]) if place else max(1, len(text.splitlines()))
        reason = _PARSER_LINE.sub("", str(error)).removesuffix(" (at end of document)")
        fail(f"{name}:{line}", f"not TOML ({reason})", 'write key = value, with texts in "quotes"')


def _check_sections(content: dict[str, Any], sections: Sections, places: _Places) -> None:
    """Refuse unknown sections and wrong forms: ``[cluster]`` is written once, ``[[node]]`` as often as there are nodes."""
    for section, value in content.items():
        is_section = isinstance(value, dict | list)
        where = places.of_section(section) if is_section else places.of_key("", 0, section)
        if section not in sections and not is_section and section in sections[CLUSTER]:
            fail(where, f"key {section!r} stands outside of a section", "write it below [cluster]")
        if section not in sections:
            fail(where, f"unknown section {section!r}", f"write {nearest(section, _FORMS)}")
        if section == CLUSTER and not isinstance(value, dict):
            fail(places.of_section(section), "the section cluster stands more than once", "write [cluster], once")
        if section != CLUSTER and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            remedy = f"write [[{section}]], in double brackets"
            fail(places.of_section(section), f"[{section}] is a list of nodes", remedy)
    if CLUSTER not in content:
        remedy = 'write [cluster], name = "…" and broker = "…"'
        fail(places.of_section(CLUSTER), "the section [cluster] is missing", remedy)


def _table(section: str, number: int, values: dict[str, Any], sections: Sections, places: _Places) -> Table:
    """Return a section from the file after a check of its names and of each value."""
    table = Table(section, places.of_section(section, number), sections[section])
    for name, value in values.items():
        where = places.of_key(section, number, name)
        if name not in table.known:
            title = f"[{section}]" if section == CLUSTER else f"[[{section}]]"
            fail(where, f"unknown key {name!r} in {title}", f"write {nearest(name, table.known)}")
        table.written[name] = Written(table.known[name].checked(value, where), where)
    return table


def check_required(document: Document) -> None:
    """Raise unless every section has its required settings, in the file or in the environment."""
    for table in (document.cluster, *document.nodes):
        for row in table.known.values():
            if row.is_required and row.name not in table.written:
                fail(table.head, f"{row.name} is missing in [{table.section}]", f"write {row.proposal}")


# ---- The environment laid over the cluster file: one variable for each key, and files that hold secrets.
#
#     BROKERHA_CLUSTER_ROUND_TIMEOUT_MS=800            the key round-timeout-ms of [cluster]
#     BROKERHA_MASTER_M1_HTTP=0.0.0.0:7201             the key http of the master m1
#     BROKERHA_CLUSTER_BROKER_FILE=/run/secrets/url    the value is in a file (its last line break does not count)
#
# A variable of this form that names no key is an error, like a misspelt key of the file. Other variables that begin with
# ``BROKERHA_`` are not for the cluster file (``BROKERHA_URL``) and are ignored. The environment cannot change the ids of nodes: a
# reader of the file must see which nodes take part.

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
