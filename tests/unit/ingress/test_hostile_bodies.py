"""Hostile bodies at the core of the ingress: refused with a sentence or taken, by a process that goes on or is replaced."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest

from brokerha.ingress.limits import ParserLimits
from brokerha.ingress.parsers import Parsers
from brokerha.ingress.rdf_bodies import FORMATS, is_plain, nquads_of
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import typed_operations
from brokerha.nodes.front.checking import check_texts
from brokerha.stores.sparql.protocol import check_update
from tests.support.hostile_bodies import WHOLE, bodies, poison

BODIES = 150
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    some = Parsers(ParserLimits(processes=1))
    yield some
    some.close()


def judged(parsers: Parsers, media_type: str, body: bytes) -> str:
    """What a door does with a body: why it is refused, or empty."""
    try:
        if media_type not in FORMATS:
            parsers.run(check_update, body.decode())
        elif is_plain(body, media_type):
            nquads_of(body, media_type, txid="t")
        else:
            parsers.run(nquads_of, body, media_type, txid="t")
    except (InvalidRequest, UnicodeDecodeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("number", range(len(poison())))
def test_known_poison_is_refused_before_a_parser_sees_it(parsers: Parsers, number: int) -> None:
    media_type, body = poison()[number]
    reason = judged(parsers, media_type, body)
    assert reason.startswith("MALFORMED")
    assert parsers.ended == 0


@pytest.mark.parametrize("media_type", [kind for kind in WHOLE if kind in FORMATS])
def test_a_document_that_is_cut_off_gives_nothing_but_whole_statements(parsers: Parsers, media_type: str) -> None:
    whole = WHOLE[media_type]
    full = set(nquads_of(whole, media_type, txid="t").splitlines())
    for length in range(len(whole)):
        try:
            found = nquads_of(whole[:length], media_type, txid="t")
        except InvalidRequest:
            continue
        assert media_type != "application/rdf+xml"
        # A number that lost its decimals is a number and the end of a statement.
        cut = '<urn:x:a> <urn:x:b> "12"^^<http://www.w3.org/2001/XMLSchema#integer> .'
        assert set(found.splitlines()) <= {*full, cut}


@pytest.mark.parametrize("seed", range(4))
def test_hostile_bodies_end_no_parser(parsers: Parsers, seed: int) -> None:
    refused = sum(bool(judged(parsers, *body)) for body in islice(bodies(random.Random(seed), MOST_BYTES), BODIES))
    assert parsers.ended == 0
    assert 0 < refused < BODIES


def test_an_operation_is_judged_like_a_body() -> None:
    for media_type, body in poison():
        if media_type == "application/n-quads":
            with pytest.raises(InvalidRequest, match="nested more than"):
                check_texts(typed_operations([("add", "main", body.decode())]))
        if media_type == "application/sparql-update":
            with pytest.raises(InvalidRequest, match="MALFORMED"):
                check_texts(typed_operations([("update", "main", body.decode())]))
