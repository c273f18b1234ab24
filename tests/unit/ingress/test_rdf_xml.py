"""XML is whole, flat, and does not grow, before the engine sees it."""

from __future__ import annotations

import pytest

from brokerha.ingress.limits import DEPTH_LIMIT
from brokerha.ingress.rdf_bodies import XmlScan, check_xml
from brokerha.model.errors import InvalidRequest

WHOLE = (
    b'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [<!ENTITY owl "http://www.w3.org/2002/07/owl#">]>\n'
    b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:"><!-- a > b -->'
    b'<rdf:Description rdf:about="&owl;Thing"><u:p>x</u:p><u:q xml:lang="en"><![CDATA[<]]> &lt;</u:q></rdf:Description></rdf:RDF>'
)


def test_a_document_with_entities_for_namespaces_passes() -> None:
    check_xml(WHOLE)


def test_a_document_that_ends_too_soon_is_refused_wherever_it_ends() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(SyntaxError):
            check_xml(WHOLE[:length])


def test_the_place_of_a_fault_is_told() -> None:
    with pytest.raises(SyntaxError, match=r"line 2, column 3: mismatched tag"):
        check_xml(b"<a><b>\n</a></b>")


@pytest.mark.parametrize(
    ("subset", "problem"),
    [
        (b'<!ENTITY a "x"><!ENTITY b "&a;&a;">', "holds another entity"),
        (b'<!ENTITY a SYSTEM "file:///etc/passwd">', "lies elsewhere"),
        (b'<!ENTITY % a "x">', "parameter"),
        (b'<!ENTITY a "' + b"x" * 1025 + b'">', "more than 1024 characters"),
        (b"".join(b'<!ENTITY a%d "x">' % n for n in range(257)), "more than 256 entities"),
    ],
)
def test_entities_that_could_grow_are_refused(subset: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        check_xml(b"<!DOCTYPE r [" + subset + b"]><r/>")


def test_entities_are_refused_before_they_have_grown() -> None:
    body = b'<!DOCTYPE r [<!ENTITY a "' + b"x" * 1000 + b'">]><r u="' + b"&a;" * 40_000 + b'"/>'
    with pytest.raises(InvalidRequest, match="grow to more than"):
        check_xml(body)


def test_a_reference_that_is_cut_in_two_counts() -> None:
    head = b'<!DOCTYPE r [<!ENTITY abc "' + b"x" * 1024 + b'">]><r>'
    scan = XmlScan()
    scan.feed(head)
    with pytest.raises(InvalidRequest, match="grow"):
        feed(scan, [b"&ab", b"c;"] * 33_000)


def feed(scan: XmlScan, pieces: list[bytes]) -> None:
    for piece in pieces:
        scan.feed(piece)


def test_elements_are_nested_up_to_the_limit() -> None:
    check_xml(b"<a>" * DEPTH_LIMIT + b"</a>" * DEPTH_LIMIT)
    with pytest.raises(InvalidRequest, match="elements are nested"):
        check_xml(b"<a>" * (DEPTH_LIMIT + 1))
