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
