"""The mapping file (TOML): how a row of CSV, JSON or Parquet becomes RDF statements, or a key with its value. Checked as a whole.

    [quads]                                          or   [keys]
    subject = "https://example.org/person/{id}"           table = "prices"
    graph = "https://example.org/people"                  key = "{country}/{sku}"
    types = ["https://schema.org/Person"]                 value = "price"            one column as it is
    [[quads.property]]                                    values = ["price", "tax"]  or a JSON object of columns
    predicate = "https://schema.org/name"
    column = "name"                                       [csv]
    language = "en"                                       delimiter = ";"
    [[quads.property]]                                    columns = ["id", "name"]   where the file has no head
    predicate = "https://schema.org/address"              line_breaks = true         values may have line breaks
    object = "https://example.org/city/{city}"

``{column}`` is the value of a column. It is percent-encoded in IRIs; in labels of blank nodes (``_:b{id}``) all characters but
letters and digits are escaped. ``{+column}`` inserts the value unchanged; ``{{`` and ``}}`` are braces.

>>> template("urn:{a}/{+b}", "x").parts
(('urn:', None, False), ('', 'a', False), ('/', None, False), ('', 'b', True))
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from brokerha.model.errors import ConfigurationError

ALL_COLUMNS = "*"
_PART = re.compile(r"\{\{|\}\}|\{(\+?)([^{}]+)\}|([{}])")
_IRI = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:[^\s<>"{}|^`\\]*\Z')
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*\Z")


class Template(NamedTuple):
    """A text with placeholders for values of columns."""

    parts: tuple[tuple[str, str | None, bool], ...]
    """(text, None, False), or ("", column, whether the value is inserted unchanged)."""

    @property
    def columns(self) -> set[str]:
        """The columns that it uses."""
        return {column for _, column, _ in self.parts if column is not None}


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The format of a CSV file. Quoting as in RFC 4180."""

    delimiter: str = ","
    columns: tuple[str, ...] = ()
    """Empty: the first line names them."""
    has_line_breaks: bool = False


@dataclass(frozen=True, slots=True)
class Property:
    """One statement of a row; omitted when the row has no value for it."""

    predicate: str
    column: str = ""
    """Column whose value becomes a literal."""
    object: Template | None = None
    """Else the template of an IRI or a blank node."""
    datatype: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class QuadForm:
    """A row as statements about one subject."""

    subject: Template
    graph: Template | None
    types: tuple[str, ...]
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class KeyForm:
    """A row as one key with its value."""

    table: str
    key: Template
    value: str = ""
    """The column whose bytes are the value."""
    values: tuple[str, ...] = ()
    """Or the columns of a JSON object; `*` for all."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole mapping file: either `quads` or `keys`."""

    quads: QuadForm | None = None
    keys: KeyForm | None = None
    csv: CsvForm = field(default_factory=CsvForm)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the mapping reads, sorted; with `*` when it reads all."""
        names: set[str] = set()
        if self.quads is not None:
            names |= self.quads.subject.columns
            names |= self.quads.graph.columns if self.quads.graph is not None else set()
            for one in self.quads.properties:
                names |= one.object.columns if one.object is not None else {one.column}
        if self.keys is not None:
            names |= self.keys.key.columns | set(self.keys.values) | ({self.keys.value} if self.keys.value else set())
        return tuple(sorted(names))


def load_mapping(path: Path) -> Mapping:
    """Read the mapping of a file. Raises ConfigurationError with the file and the problem."""
    try:
        return read_mapping(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigurationError(f"the mapping {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the mapping {path} is not UTF-8") from None


def read_mapping(text: str, where: str) -> Mapping:
    """Read the mapping of a text. Raises ConfigurationError, which begins with ``where``."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    top = _Section(where, "the file", document)
    quads, keys, csv = top.section("quads"), top.section("keys"), top.section("csv")
    top.end()
    if (quads is None) == (keys is None):
        raise ConfigurationError(f"{where}: write one of the sections [quads] and [keys]")
    return Mapping(
        _quad_form(quads) if quads is not None else None,
        _key_form(keys) if keys is not None else None,
        _csv_form(csv) if csv is not None else CsvForm(),
    )


def template(text: str, where: str) -> Template:
    """Parse a text with placeholders for columns. Raises ConfigurationError for an unpaired brace."""
    parts: list[tuple[str, str | None, bool]] = []
    plain, position = "", 0
    for found in _PART.finditer(text):
        plain += text[position : found.start()]
        position = found.end()
        if found[3]:
            raise ConfigurationError(f"{where}: {text!r} has a single brace: write {{column}}, or {{{{ for a brace")
        if found[2] is None:
            plain += found[0][0]
            continue
        if plain:
            parts.append((plain, None, False))
        parts.append(("", found[2], bool(found[1])))
        plain = ""
    plain += text[position:]
    if plain or not parts:
        parts.append((plain, None, False))
    return Template(tuple(parts))


XSD: Final = "http://www.w3.org/2001/XMLSchema#"
XSD_NAMES: Final = frozenset({
    "anyURI", "base64Binary", "boolean", "byte", "date", "dateTime", "dateTimeStamp", "dayTimeDuration", "decimal", "double",
    "duration", "ENTITY", "float", "gDay", "gMonth", "gMonthDay", "gYear", "gYearMonth", "hexBinary", "ID", "IDREF", "int", "integer",
    "language", "long", "Name", "NCName", "negativeInteger", "NMTOKEN", "nonNegativeInteger", "nonPositiveInteger", "normalizedString",
    "NOTATION", "positiveInteger", "QName", "short", "string", "time", "token", "unsignedByte", "unsignedInt", "unsignedLong",
    "unsignedShort", "yearMonthDuration",
})  # fmt: skip
_LIKE_XSD: Final = re.compile(r"xsd?:|https?://(www\.)?w3\.org/2001/XMLSchema", re.IGNORECASE)


class _Section:
    """One section of the file. Fields are taken out one by one; a field that is left over is a mistake."""

    def __init__(self, where: str, name: str, fields: dict[str, Any]) -> None:
        self.place = f"{where}: {name}"
        self._where = where
        self._left = dict(fields)

    def wrong(self, text: str) -> NoReturn:
        raise ConfigurationError(f"{self.place}: {text}")

    def section(self, name: str) -> _Section | None:
        found = self._left.pop(name, None)
        if found is None:
            return None
        if not isinstance(found, dict):
            self.wrong(f"{name} is a section: write [{name}]")
        return _Section(self._where, f"[{name}]", found)

    def sections(self, name: str) -> list[_Section]:
        found = self._left.pop(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self.wrong(f"{name} is written as [[quads.{name}]], once for each")
        return [_Section(self._where, f"[[quads.{name}]] number {place}", one) for place, one in enumerate(found, 1)]

    def text(self, name: str) -> str:
        found = self._left.pop(name, "")
        if not isinstance(found, str):
            self.wrong(f"{name} is a text")
        return found

    def needed(self, name: str) -> str:
        return self.text(name) or self.wrong(f"{name} is missing")

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._left.pop(name, [])
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            self.wrong(f"{name} is a list of texts")
        return tuple(found)

    def flag(self, name: str) -> bool:
        found = self._left.pop(name, False)
        if not isinstance(found, bool):
            self.wrong(f"{name} is true or false")
        return found

    def iri(self, name: str, text: str) -> str:
        return text if _IRI.match(text) else self.wrong(f"{name} {text!r} is no absolute IRI")

    def template(self, name: str, text: str) -> Template:
        return template(text, f"{self.place}: {name}")

    def end(self) -> None:
        if self._left:
            self.wrong(f"unknown field {min(self._left)!r}")


def _quad_form(section: _Section) -> QuadForm:
    subject = section.template("subject", section.needed("subject"))
    graph = section.text("graph")
    types = tuple(section.iri("types", one) for one in section.texts("types"))
    properties = tuple(_property(one) for one in section.sections("property"))
    section.end()
    if not properties and not types:
        section.wrong("it has neither types nor [[quads.property]]: a row would become nothing")
    return QuadForm(subject, section.template("graph", graph) if graph else None, types, properties)


def _property(section: _Section) -> Property:
    predicate = section.iri("predicate", section.needed("predicate"))
    column, target = section.text("column"), section.text("object")
    datatype, language = section.text("datatype"), section.text("language")
    section.end()
    if bool(column) == bool(target):
        section.wrong("write one of column (a literal) and object (an IRI)")
    if target and (datatype or language):
        section.wrong("datatype and language belong to a column: an object is an IRI")
    if datatype and language:
        section.wrong("write one of datatype and language")
    if datatype:
        _check_datatype(section, datatype)
    if language and not _LANGUAGE.match(language):
        section.wrong(f"language {language!r} is no language tag, such as en or de-AT")
    return Property(predicate, column, section.template("object", target) if target else None, datatype, language)


def _check_datatype(section: _Section, datatype: str) -> None:
    """Check that a datatype is an IRI, and exists in XML Schema if it is meant to be from there."""
    section.iri("datatype", datatype)
    name = datatype.removeprefix(XSD)
    if name in XSD_NAMES or (name == datatype and not _LIKE_XSD.match(datatype)):
        return
    word = re.split(r"[#/:]", datatype)[-1]
    spelled = {each.lower(): each for each in XSD_NAMES}
    close = difflib.get_close_matches(word.lower()[:64], spelled, n=1)
    instead = f"{XSD}{spelled[close[0]]}" if close else f"{XSD} and one of {', '.join(sorted(XSD_NAMES))}"
    section.wrong(f"datatype {datatype!r} is none of XML Schema: write {instead}")


def _key_form(section: _Section) -> KeyForm:
    form = KeyForm(
        section.needed("table"), section.template("key", section.needed("key")), section.text("value"), section.texts("values")
    )
    section.end()
    if bool(form.value) == bool(form.values):
        section.wrong("write one of value (a column) and values (columns of a JSON object)")
    return form


def _csv_form(section: _Section) -> CsvForm:
    delimiter = section.text("delimiter") or ","
    form = CsvForm(delimiter, section.texts("columns"), section.flag("line_breaks"))
    section.end()
    if len(delimiter) != 1 or delimiter in '"\r\n':
        section.wrong("delimiter is one character, and neither a quotation mark nor a line end")
    return form
