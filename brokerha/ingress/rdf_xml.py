"""Whether an XML body is whole, flat enough, and free of entities that grow: asked of expat, before the engine parses it.

The engine takes what ends too soon for the end, and expands entities without a limit. expat is a parser without recursion,
which knows both; what it says is the syntax of XML, so nothing that is XML is refused but for a limit:

    an entity inside of an entity, of a file or a URL, a parameter entity     refused: namespaces need none of them
    an entity of more than ENTITY_LIMIT_CHARS, all together more than EXPANDED_LIMIT_BYTES
    elements nested more than DEPTH_LIMIT deep

>>> check_xml(b"<a><b/></a>")
>>> check_xml(b"<a><b>")
Traceback (most recent call last):
...
SyntaxError: line 1, column 7: no element found: the XML is not whole
"""

from __future__ import annotations

from typing import Any, Final
from xml.parsers import expat

from brokerha.ingress.limits import DEPTH_LIMIT, ENTITIES_LIMIT, ENTITY_LIMIT_CHARS, EXPANDED_LIMIT_BYTES
from brokerha.model.errors import InvalidRequest

_PIECE: Final = 1024 * 1024
_REFERENCE_BYTES: Final = 256
_PREFIX: Final = "MALFORMED DATA: "


_CUT_OFF: Final = frozenset(
    expat.errors.codes[name]
    for name in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
)


def check_xml(body: bytes) -> None:
    """Raise SyntaxError: no well-formed XML (with line and column); InvalidRequest: beyond a limit."""
    scan = XmlScan()
    # In pieces, so that no single call of C is long.
    for at in range(0, len(body), _PIECE):
        scan.feed(body[at : at + _PIECE])
    scan.end()


class XmlScan:
    """What has been seen of one body; raises what `check_xml` raises."""

    def __init__(self) -> None:
        self._depth = 0
        self._entities: dict[bytes, int] = {}
        self._grown = 0
        self._piece = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.EntityDeclHandler = self._on_entity
        self._parser.EndDoctypeDeclHandler = self._grow

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        # A reference that is cut in two is found with what comes before it.
        self._piece = self._piece[-_REFERENCE_BYTES:] + piece
        self._grow()
        self._parse(piece, is_last=False)

    def end(self) -> None:
        """There are no more."""
        self._parse(b"", is_last=True)

    def _parse(self, piece: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(piece, is_last)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            whole = ": the XML is not whole" if error.code in _CUT_OFF else ""
            raise SyntaxError(f"line {error.lineno}, column {error.offset + 1}: {problem}{whole}") from None

    def _on_start(self, _name: str, _attributes: Any) -> None:
        self._depth += 1
        if self._depth > DEPTH_LIMIT:
            raise InvalidRequest(f"{_PREFIX}elements are nested more than {DEPTH_LIMIT} deep")

    def _on_end(self, _name: str) -> None:
        self._depth -= 1

    def _on_entity(
        self, name: str, is_parameter: int, value: str | None, _base: Any, _system: Any, _public: Any, _notation: Any
    ) -> None:
        if is_parameter or value is None:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} is a parameter or lies elsewhere: write its text")
        if "&" in value:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} holds another entity: write its text")
        if len(value) > ENTITY_LIMIT_CHARS:
            raise InvalidRequest(f"{_PREFIX}the entity {name[:50]!r} has more than {ENTITY_LIMIT_CHARS} characters")
        if len(self._entities) >= ENTITIES_LIMIT:
            raise InvalidRequest(f"{_PREFIX}more than {ENTITIES_LIMIT} entities")
        self._entities[b"&%b;" % name.encode()] = len(value.encode())

    def _grow(self) -> None:
        """Count what the entities in this piece grow to, before any of them does."""
        self._grown += sum(self._piece.count(reference) * size for reference, size in self._entities.items())
        if self._grown > EXPANDED_LIMIT_BYTES:
            raise InvalidRequest(f"{_PREFIX}its entities grow to more than {EXPANDED_LIMIT_BYTES} bytes")
