"""The cluster file as text: sections, values, and the place where each of them stands.

    document = read_document(Path("cluster.toml"), sections)
    document.cluster["broker"]       Setting(value="amqp://…", where="cluster.toml:3")
    document.nodes[0]                Table("master", head="cluster.toml:9", {"id": Setting("m1", "cluster.toml:10"), …})

Whatever is wrong is one ConfigurationError whose text begins with the place (``file:line``, or the environment variable)
and ends with what to write instead. The parser of the standard library gives no line numbers, so the lines are found by
looking for section heads and ``key =``; a file that uses the odder forms of TOML (inline tables, dotted keys) is read all
the same, and an error then names the line of the section or the first line.

Only the values of single keys are checked here: known name, type, bounds, choices. What must hold between values is in
rules.py. Text of an error never shows the value of ``broker``, which may hold a password.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.keys import WORDS, KeyRow, in_file

CLUSTER = "cluster"
NODE_SECTIONS = ("master", "backup", "worker")
_FORMS = ("[cluster]", "[[master]]", "[[backup]]", "[[worker]]")

_HEAD = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]{1,2}")
_ASSIGNMENT = re.compile(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*=""")
_PARSER_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

Sections = Mapping[str, Mapping[str, KeyRow]]
"""Keys of each section."""


class Setting(NamedTuple):
    """A value and where it was written."""

    value: Any
    where: str


@dataclass(slots=True)
class Table:
    """One section of the file: the cluster, or one node."""

    section: str
    head: str
    """Where the section begins."""
    settings: dict[str, Setting] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Setting:
        """The setting of a key that is present."""
        return self.settings[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return self.settings[key].value if key in self.settings else default

    def where(self, *keys: str) -> str:
        """Place of the first of these keys that is written down, else of the section."""
        return next((self.settings[key].where for key in keys if key in self.settings), self.head)


@dataclass(frozen=True, slots=True)
class Document:
    """The whole file; each value has the type and the bounds of its key."""

    path: Path
    cluster: Table
    nodes: tuple[Table, ...]
    """In the order of the file: masters, backups, workers."""


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


def fail(where: str, problem: str, remedy: str) -> NoReturn:
    """Raise the one ConfigurationError: place, what is wrong, what to write instead."""
    raise ConfigurationError(f"{where}: {problem}: {remedy}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or *one of* all of them."""
    names = list(known)
    close = difflib.get_close_matches(word.lower().replace("_", "-"), names, n=1, cutoff=0.5)
    return close[0] if close else f"one of {', '.join(names)}"


def read_document(path: Path, sections: Sections) -> Document:
    """Read and check the file, value by value. Raises ConfigurationError."""
    name = str(path)
    text = _read_text(path, name)
    places = _Places(name, text)
    content = _parse(text, name)
    _check_sections(content, sections, places)
    cluster = Table(CLUSTER, places.of_section(CLUSTER))
    _take(cluster, content[CLUSTER], sections[CLUSTER], lambda key: places.of_key(CLUSTER, 0, key))
    nodes = []
    for section in NODE_SECTIONS:
        for number, values in enumerate(content.get(section, [])):
            table = Table(section, places.of_section(section, number))
            _take(table, values, sections[section], lambda key, s=section, n=number: places.of_key(s, n, key))
            nodes.append(table)
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
    """Only known sections, each in its form: ``[cluster]`` once, ``[[node]]`` as often as there are nodes."""
    for section, value in content.items():
        if section not in sections:
            if not isinstance(value, dict | list) and section in sections[CLUSTER]:
                fail(
                    places.of_key("", 0, section),
                    f"key {section!r} stands outside of a section",
                    "write it below [cluster]",
                )
            where = places.of_section(section) if isinstance(value, dict | list) else places.of_key("", 0, section)
            fail(where, f"unknown section {section!r}", f"write {nearest(section, _FORMS)}")
        if section == CLUSTER and not isinstance(value, dict):
            fail(places.of_section(section), "the section cluster stands more than once", "write [cluster], once")
        if section != CLUSTER and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            fail(
                places.of_section(section),
                f"[{section}] is a list of nodes",
                f"write [[{section}]], in double brackets",
            )
    if CLUSTER not in content:
        fail(
            places.of_section(CLUSTER),
            "the section [cluster] is missing",
            'write [cluster], name = "…" and broker = "…"',
        )


def _take(table: Table, values: dict[str, Any], keys: Mapping[str, KeyRow], where: Any) -> None:
    """Fill a table from the file; checks names, types, bounds and that what is required is there."""
    for name, value in values.items():
        if name not in keys:
            title = f"[{table.section}]" if table.section == CLUSTER else f"[[{table.section}]]"
            fail(where(name), f"unknown key {name!r} in {title}", f"write {nearest(name, keys)}")
        table.settings[name] = checked(keys[name], value, where(name))


def check_required(document: Document, sections: Sections) -> None:
    """Raise unless every section has its required keys, from the file or from the environment."""
    for table in (document.cluster, *document.nodes):
        for row in sections[table.section].values():
            if row.is_required and row.name not in table.settings:
                fail(table.head, f"{row.name} is missing in [{table.section}]", f"write {row.proposal}")


def checked(row: KeyRow, value: Any, where: str) -> Setting:
    """The value of a key in its type, within its bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if row.type is bool:
        if not isinstance(value, bool):
            fail(where, f"{row.name} is {in_file(value)}, and must be {_wanted(row)}", f"write {row.proposal}")
        return Setting(value, where)
    if row.type in {str, Path}:
        if not isinstance(value, str) or not value.strip():
            problem = "is empty" if isinstance(value, str) else f"is {value!r}, and must be a text"
            remedy = row.proposal if isinstance(value, str) or row.key.choices else f'{row.name} = "{value}"'
            fail(where, f"{row.name} {problem}", f"write {remedy}")
        return Setting(_chosen(row, value, where), where)
    if not is_number or (row.type is int and not isinstance(value, int)):
        fail(
            where,
            f"{row.name} is {in_file(value)}, and must be a {_wanted(row)}",
            f"write {_without_quotes(row, value)}",
        )
    _check_bounds(row, value, where)
    return Setting(row.type(value), where)


def _check_bounds(row: KeyRow, value: float, where: str) -> None:
    low, high = row.key.low, row.key.high
    if (low is not None and not value >= low) or (high is not None and not value <= high) or value == float("inf"):
        fail(where, f"{row.name} = {value} is out of bounds", f"write a {_wanted(row)}, {row.bounds}")


def _chosen(row: KeyRow, value: str, where: str) -> str:
    if not row.key.choices:
        return value
    if value.lower() not in row.key.choices:
        close = nearest(value.lower(), row.key.choices)
        fail(
            where,
            f'{row.name} = "{value}" is not known',
            f'write {row.name} = "{close}"' if close in row.key.choices else f"write {close}",
        )
    return value.lower()


def _wanted(row: KeyRow) -> str:
    return f"{WORDS[row.type]} of {row.key.unit}" if row.key.unit else WORDS[row.type]


def _without_quotes(row: KeyRow, value: object) -> str:
    """Propose the same number without its quotes or its fraction, when it is one."""
    try:
        return f"{row.name} = {row.type(str(value).strip())}"
    except ValueError:
        return row.proposal
