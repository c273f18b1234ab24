"""Bodies that are meant to end, stop or fool whoever parses them: each is (content type, bytes), made from a seed.

    bodies(random.Random(7), most_bytes=1_000_000)      a stream without an end
    poison()                                            one of each kind that is known to have ended or bloated a parser

The kinds: nesting of each bracket of each format, repetition, truncation of a whole document at any byte, wrong encodings, huge
numbers, entities, mixed ends of lines, control characters, and all of that spliced into each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

Body = tuple[str, bytes]

_RDF: Final = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
WHOLE: Final[dict[str, bytes]] = {
    "application/n-triples": b'<urn:a> <urn:b> "x"@en .\n_:c <urn:d> <<( <urn:a> <urn:b> "1" )>> .\n',
    "application/n-quads": b'<urn:a> <urn:b> "1"^^<urn:t> <urn:g> .\n_:a <urn:b> "y" _:g .\n',
    "text/turtle": b'@prefix : <urn:x:> .\n:a :b "x", 12.5, true ; :c [ :d ( 1 2 ) ] .\n:e :f """lo"ng"""@en-GB .\n',
    "application/trig": b'@prefix : <urn:x:> .\n:g { :a :b "x" ; :c :d . }\nGRAPH :h { :a :b "q"@en . }\n',
    "text/n3": b"@prefix : <urn:x:> .\n:a :b :c . { :a :b :c } => { :d :e :f } .\n",
    "application/ld+json": b'{"@context": {"b": "urn:b"}, "@id": "urn:a", "b": ["x", {"@value": "y", "@language": "en"}]}',
    "application/rdf+xml": _RDF + b'<rdf:Description rdf:about="urn:1"><u:p>x</u:p></rdf:Description></rdf:RDF>',
    "application/sparql-update": b"PREFIX : <urn:x:> DELETE { ?s :p ?o } INSERT { ?s :q ?o } WHERE { ?s :p ?o FILTER(?o > 1 || !bound(?s)) }",
}
_BRACKETS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "application/n-triples": (("<urn:s> <urn:p> <<( ", " )>> ."), ("<<( <urn:a> <urn:b> ", " )>>")),
    "application/n-quads": (("<<( <urn:a\u2028> <urn:b> ", " )>>"), ("<<( <urn:a> <urn:b> ", " )>>")),
    "text/turtle": (
        ("[ <urn:a> ", " ]"), ("( ", " )"), ("<<( <urn:a> <urn:b> ", " )>>"), ("<< <urn:a> <urn:b> ", " >>"), ("{| <urn:a> ", " |}"),
    ),
    "application/trig": (("<urn:g> { ", " }"), ("[ <urn:a> ", " ]"), ("<<( <urn:a> <urn:b> ", " )>>")),
    "text/n3": (("{ <urn:a> <urn:b> ", " }"), ("( ", " )"), ("<urn:a>!", "")),
    "application/ld+json": (('{"urn:a":', "}"), ("[", "]"), ('{"@list":[', "]}"), ('{"@graph":', "}"), ('{"@context":', "}")),
    "application/rdf+xml": (("<u:a><u:b>", "</u:b></u:a>"), ('<u:a><u:b rdf:parseType="Literal">', "</u:b></u:a>"), ("<u:x>", "</u:x>")),
    "application/sparql-update": (
        ("INSERT { } WHERE { ", " }"), ("{ ", " }"), ("OPTIONAL { ?s ?p ", " }"), ("FILTER NOT EXISTS { ", " }"), ("( ", " )"),
        ("FILTER(", ")"), ("STR(", ")"), ("!", ""), ("[ <urn:a> ", " ]"), ("<<( ?a ?b ", " )>>"), ("(<urn:a>/", ")*"),
    ),
}  # fmt: skip
_REPEATED: Final = ("-", "!", "/", "|", "^", "&&1", "||1", "+1", ".", ";", ",", "a:", "\\u0041", "%41", "<urn:a> ", '"', "'", "&a;")
_JUNK: Final = (
    b"\0", b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\r", b"\r\n\n\r", b"\x0b", b"\x1c", b"\\uD800", b"\\U00110000",
    b"1" * 5000, b"1e999999999", b"-0.0E-99999", b'"^^<http://www.w3.org/2001/XMLSchema#integer>', b"@" + b"a" * 300, b"<" * 50, b"]]>",
    b"<!--", b"<![CDATA[", b'<!DOCTYPE r [<!ENTITY a "xxxxxxxxxx">]>', b"urn:brokerha:system", b"NaN", b"Infinity", b'{"@id":',
)  # fmt: skip


def poison(depth: int = 20_000) -> list[Body]:
    """Each kind that has ended or bloated a process that parsed it without an ingress."""
    terms = "<<( <urn:a\u2028> <urn:b> " * depth + "<urn:c>" + " )>>" * depth
    xml = b"".join(
        b'<!ENTITY %c "%b">' % (98 + level, b"&%c;" % (97 + level) * 20) for level in range(5)
    )  # each level is 20 of the one before
    return [
        ("application/n-quads", f"<urn:s> <urn:p> {terms} .".encode()),
        ("text/turtle", f"<urn:s> <urn:p> {terms} .".encode()),
        ("application/trig", f"<urn:g> {{ <urn:s> <urn:p> {terms} }}".encode()),
        ("application/ld+json", b'{"urn:a":' * depth + b"1" + b"}" * depth),
        ("application/rdf+xml", b'<!DOCTYPE r [<!ENTITY a "xxxxxxxxxx">' + xml + b"]>" + _RDF + b'<u:a u:b="&f;"/></rdf:RDF>'),
        ("application/rdf+xml", _RDF + b"<u:a><u:b>" * depth + b"</u:b></u:a>" * depth + b"</rdf:RDF>"),
        ("application/sparql-update", f"INSERT DATA {{ <urn:s> <urn:p> {terms} }}".encode()),
        ("application/sparql-update", b"INSERT { } WHERE " + b"{ OPTIONAL " * depth + b"}" * depth),
    ]


def bodies(chance: random.Random, most_bytes: int) -> Iterator[Body]:
    """Hostile bodies, one after the other."""
    kinds: list[Callable[[random.Random, str, int], bytes]] = [_nested, _repeated, _cut, _spliced, _of_junk]
    while True:
        media_type = chance.choice(list(WHOLE))
        body = chance.choice(kinds)(chance, media_type, most_bytes)
        if chance.random() < 0.2:
            body = body.replace(b"\n", chance.choice((b"\r", b"\r\n", "\u2028".encode(), b"")))
        yield media_type, body[:most_bytes]


def _nested(chance: random.Random, media_type: str, most_bytes: int) -> bytes:
    opening, closing = chance.choice(_BRACKETS[media_type])
    most = max(2, most_bytes // (len(opening.encode()) + len(closing) + 1))
    depth = chance.choice((chance.randint(1, 120), chance.randint(1, most)))
    inside = chance.choice(("<urn:c>", "1", '"x"', ""))
    closed = depth if chance.random() < 0.7 else chance.randint(0, depth)
    text = opening * depth + inside + closing * closed
    head = {"application/rdf+xml": _RDF.decode(), "application/sparql-update": "INSERT DATA { <urn:s> <urn:p> "}
    tail = {"application/rdf+xml": "</rdf:RDF>", "application/sparql-update": " }", "application/ld+json": ""}
    if chance.random() < 0.5:
        head["application/sparql-update"] = "INSERT { } WHERE { ?s ?p ?o . "
    return f"{head.get(media_type, '' if 'json' in media_type else '<urn:s> <urn:p> ')}{text}{tail.get(media_type, ' .')}".encode()


def _repeated(chance: random.Random, media_type: str, most_bytes: int) -> bytes:
    whole = WHOLE[media_type]
    piece = chance.choice((*_REPEATED, whole.decode())).encode()
    at = chance.randint(0, len(whole))
    return whole[:at] + piece * chance.randint(2, max(3, min(200_000, most_bytes // len(piece)))) + whole[at:]


def _cut(chance: random.Random, media_type: str, _most: int) -> bytes:
    whole = WHOLE[media_type]
    return whole[: chance.randint(0, len(whole))]


def _spliced(chance: random.Random, media_type: str, _most: int) -> bytes:
    body = bytearray(WHOLE[media_type])
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(body))
        body[at : at + chance.randint(0, 5)] = chance.choice((*_JUNK, chance.randbytes(8)))
    return bytes(body)


def _of_junk(chance: random.Random, _media_type: str, _most: int) -> bytes:
    return b"".join(chance.choice(_JUNK) for _ in range(chance.randint(1, 60)))
