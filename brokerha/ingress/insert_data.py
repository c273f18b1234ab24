r"""A long SPARQL update of one INSERT DATA, cut into TriG documents of bounded size and whole statements, for separate parsing.

    PREFIX : <urn:>  INSERT DATA { :a :b 1 . GRAPH :g { :c :d 2 . :e :f 3 } }
         1st  PREFIX : <urn:> :a :b 1 .
         2nd  PREFIX : <urn:> GRAPH :g { :c :d 2 .}
         3rd  PREFIX : <urn:> GRAPH :g { :e :f 3 }

The two syntaxes differ in the dot: SPARQL can omit it before a graph, and can have one after it. A scanner finds the ends of
statements, outside of strings, IRIs and comments; the parser of the document reports errors within a statement.

>>> [document for _, document in documents([b"INSERT DATA { <urn:a> <urn:b> '1. }' GRAPH <urn:g> { <urn:c> <urn:d> 2 } . }"])]
[b" <urn:a> <urn:b> '1. }'  . GRAPH <urn:g> { <urn:c> <urn:d> 2 }  \n"]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import BODY_LIMIT_BYTES

DOCUMENT_BYTES: Final = 64 * 1024
"""A document ends with the statement that reaches this size."""
PROLOGUE_LIMIT_BYTES: Final = 64 * 1024
"""It is repeated before each document."""
_ALONE: Final = f"an update of more than {BODY_LIMIT_BYTES} bytes is one INSERT DATA alone: other kinds are shorter, and several are several requests"
_IRI: Final = rb'<[^<>"{}|^`\x00-\x20]*+>'
_SPACE: Final = rb"\s++|\#[^\r\n]*+[\r\n]"
_GAP: Final = rb"(?:" + _SPACE + rb")*+"
_DECLARED: Final = rb"\bPREFIX(?:" + _SPACE + rb")++[^\s:<>]*+:" + _GAP + _IRI + rb"|\bBASE" + _GAP + _IRI
_PROLOGUE: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?((?:" + _SPACE + rb"|" + _DECLARED + rb")*+)INSERT" + _GAP + rb"DATA" + _GAP + rb"\{", re.IGNORECASE
)
_DECLARATION: Final = re.compile(_SPACE + rb"|(" + _DECLARED + rb")", re.IGNORECASE)
_REST: Final = re.compile(rb"(?:" + _SPACE + rb"|;)*+")
_BETWEEN: Final = re.compile(rb"(" + _IRI + rb")|(?:" + _SPACE + rb")++")
"""An IRI, which can have a #, or what separates it from other words."""
_OPEN, _CLOSE, _DOT, _GRAPH, _END, _COMMENT, _UNFINISHED = range(1, 8)
_PUNCTUATION: Final = frozenset({_GRAPH, _END, _COMMENT})
"""Tokens that leave no statement open."""
_TOKEN: Final = re.compile(
    rb"(\{\||[\[(])|(\|\}|[\])])"
    rb"|(\.(?=[\s}\#]|GRAPH\b)|(?<=[\s}])\.(?!\d))"
    rb"|(?<![\w:%-])(GRAPH" + _GAP + rb"(?:" + _IRI + rb"|[^\s{}<>\"'\#:]*+:[^\s{}<>\"'\#]*+)" + _GAP + rb"\{)"
    rb"|(\})"
    rb"|(\#[^\r\n]*+[\r\n])"
    rb"|<<|" + _IRI + rb'|"""(?:"{0,2}(?:[^"\\]|\\.))*+"""|' + rb"'''(?:'{0,2}(?:[^'\\]|\\.))*+'''"
    rb'|(?!"""|' + rb"''')" + rb'(?:"(?:[^"\\\r\n]|\\.)*+"|' + rb"'(?:[^'\\\r\n]|\\.)*+')|\\."
    rb"|((?<![\w:%-])GRAPH" + _GAP + rb"(?:<[^>\s]*+>?|[^\s{}<>\"'\#]*+)" + _GAP + rb"(?:\#[^\r\n]*+)?\Z|[\"'<\#{])",
    re.DOTALL | re.IGNORECASE,
)
_MARGIN: Final = 3
"""A token so near to the present end is possibly unfinished: an empty string begins like a long one."""


def documents(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each document with the line number of its begin in the text. Raises InvalidRequest."""
    scanner = InsertData()
    for piece in pieces:
        yield from scanner.feed(piece)
    yield from scanner.end()


class InsertData:
    """The scanner of one such update, which comes in pieces."""

    def __init__(self) -> None:
        self._fresh: list[bytes] = []
        """Input that was not scanned yet."""
        self._fresh_bytes = 0
        self._text = b""
        """Unfinished text."""
        self._prologue: bytes | None = None
        self._graph = b""
        """Head of the graph around the scanner; empty outside of graphs."""
        self._depth = 0
        self._is_open = False
        """Whether a statement has begun without a dot at its end."""
        self._is_over = False
        self._begin_at = self._kept = self._at = 0
        """Offsets in the text: begin of the new part, end of the part moved into the document, end of the scanned part."""
        self._done: list[bytes] = []
        """Parts of the unfinished document."""
        self._done_bytes = 0
        self._line = self._first_line = 1

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Take the next bytes; yield complete documents. Raises InvalidRequest."""
        self._fresh.append(piece)
        self._fresh_bytes += len(piece)
        # Not at each piece: a long string would be scanned again and again.
        if self._fresh_bytes >= DOCUMENT_BYTES:
            yield from self._scan(is_last=False)
            if len(self._text) > BODY_LIMIT_BYTES:
                raise InvalidRequest(f"line {self._line}: a statement is longer than {BODY_LIMIT_BYTES} bytes, or not finished")

    def end(self) -> Iterator[tuple[int, bytes]]:
        """End the input; yield the last documents. Raises InvalidRequest."""
        # The line end finishes a last comment as well.
        self._fresh.append(b"\n")
        yield from self._scan(is_last=True)
        if not self._is_over:
            raise InvalidRequest(f"line {self._line}: the update ends before its closing brace, or in a string")
        if b"".join(self._done).strip():
            yield self._document()

    def _scan(self, *, is_last: bool) -> Iterator[tuple[int, bytes]]:
        self._text += b"".join(self._fresh)
        self._fresh, self._fresh_bytes = [], 0
        if self._prologue is None and not self._begin(is_last=is_last):
            return
        most = len(self._text) if is_last else len(self._text) - _MARGIN
        for token in () if self._is_over else _TOKEN.finditer(self._text, self._at):
            kind = token.lastindex
            if token.end() > most or (kind == _UNFINISHED and token[0] != b"{"):
                break
            self._is_open = self._is_open or bool(self._text[self._at : token.start()].strip())
            is_whole = self._take(token)
            self._at = token.end()
            if self._is_over:
                break
            if is_whole and self._done_bytes + self._at - self._kept >= DOCUMENT_BYTES:
                self._keep(self._at)
                yield self._document()
        self._keep(self._at)
        self._line += self._text.count(b"\n", self._begin_at, self._at)
        # The character before a token decides what it is.
        self._text = self._text[max(0, self._at - 1) :]
        self._kept = self._at = self._begin_at = min(1, self._at)
        if self._is_over:
            self._end_all(is_last=is_last)

    def _take(self, token: re.Match[bytes]) -> bool:
        """Take a token; return whether it completes a statement or a graph."""
        kind, begin = token.lastindex, token.start()
        if kind == _OPEN:
            self._depth += 1
        elif kind == _CLOSE:
            self._depth = max(0, self._depth - 1)
        elif kind == _DOT and not self._depth:
            if not self._is_open and not self._graph:
                # After a graph, where TriG has none.
                self._keep(begin, token.end())
            self._is_open = False
            return True
        elif kind == _GRAPH:
            if self._graph or self._depth:
                raise InvalidRequest(f"{self._place(begin)}: GRAPH stands inside of another graph, or of a statement")
            self._end_statement(begin)
            self._graph = _BETWEEN.sub(lambda found: found[1] or b" ", token[0])
        elif kind == _END and self._graph:
            self._graph, self._is_open = b"", False
            return True
        elif kind == _END:
            self._end_statement(begin)
            self._is_over, self._kept = True, token.end()
        elif kind == _UNFINISHED:
            raise InvalidRequest(f"{self._place(begin)}: a brace opens no graph: {_ALONE}")
        self._is_open = kind not in _PUNCTUATION or (kind == _COMMENT and self._is_open)
        return False

    def _begin(self, *, is_last: bool) -> bool:
        """Take the head; return whether it is complete."""
        head = _PROLOGUE.match(self._text)
        if head is None:
            if is_last or len(self._text) > PROLOGUE_LIMIT_BYTES:
                raise InvalidRequest(_ALONE)
            return False
        if head.end() > PROLOGUE_LIMIT_BYTES:
            raise InvalidRequest(f"what comes before INSERT DATA is longer than {PROLOGUE_LIMIT_BYTES} bytes")
        declared = [found[1] for found in _DECLARATION.finditer(head[1]) if found[1]]
        self._prologue = b"".join(each + b" " for each in declared)
        self._line = self._first_line = 1 + head[0].count(b"\n")
        self._text = self._text[head.end() :]
        return True

    def _end_all(self, *, is_last: bool) -> None:
        """Check that only space follows."""
        blank = _REST.match(self._text, self._at)
        rest = self._text[blank.end() if blank else self._at :]
        if rest and (is_last or not rest.startswith(b"#")):
            raise InvalidRequest(
                f"line {self._line}: after the closing brace comes {rest[:40].decode(errors='replace')!r}: {_ALONE}"
            )
        self._text, self._at, self._begin_at = rest, 0, 0

    def _end_statement(self, at: int) -> None:
        self._keep(at)
        if self._is_open:
            self._done.append(b" . ")

    def _keep(self, until: int, next_: int | None = None) -> None:
        """Move the text up to an offset into the document; the rest begins there, or at ``next_``."""
        self._done.append(self._text[self._kept : until])
        self._done_bytes += until - self._kept
        self._kept = until if next_ is None else next_

    def _document(self) -> tuple[int, bytes]:
        """Return the finished document, complete in itself; the next one begins in the same graph."""
        text = b"".join(self._done)
        found = self._first_line, (self._prologue or b"") + text + (b"}\n" if self._graph else b"\n")
        self._first_line += text.count(b"\n")
        self._done, self._done_bytes = ([self._graph] if self._graph else []), 0
        return found

    def _place(self, at: int) -> str:
        return f"line {self._line + self._text.count(bytes([10]), self._begin_at, at)}"
