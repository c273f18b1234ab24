"""SPARQLWrapper, unmodified, through each master: queries in every format that it knows, and updates."""

from __future__ import annotations

from typing import Any

import pytest
from rdflib import Graph, URIRef
from SPARQLWrapper import CSV, GET, JSON, JSONLD, N3, POST, POSTDIRECTLY, RDFXML, TSV, TURTLE, URLENCODED, XML, SPARQLWrapper
from SPARQLWrapper.SPARQLExceptions import QueryBadFormed

from tests.system.clients.conftest import Door

# SPARQLWrapper uses what rdflib calls deprecated.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")
INSERT = 'INSERT DATA { <urn:a> <urn:p> "süß" . GRAPH <urn:g> { <urn:a> <urn:p> <urn:b> } }'
SELECT = "SELECT ?o { <urn:a> <urn:p> ?o }"


def wrapper(door: Door, text: str, form: str = JSON, method: str = GET, sending: str = URLENCODED) -> SPARQLWrapper:
    found = SPARQLWrapper(f"{door.address}/sparql", returnFormat=form)
    found.setMethod(method)
    found.setRequestMethod(sending)
    found.setQuery(text)
    return found


def answer(asked: SPARQLWrapper) -> Any:
    """What comes back, in Python's own terms."""
    return asked.queryAndConvert()


@pytest.fixture
def filled(made: Door) -> Door:
    wrapper(made, INSERT, method=POST).query()
    return made


@pytest.mark.parametrize(("method", "sending"), [(GET, URLENCODED), (POST, URLENCODED), (POST, POSTDIRECTLY)])
def test_a_query_in_each_way_of_sending(filled: Door, method: str, sending: str) -> None:
    found = answer(wrapper(filled, SELECT, JSON, method, sending))
    assert [row["o"]["value"] for row in found["results"]["bindings"]] == ["süß"]
    asked = answer(wrapper(filled, "ASK { ?s ?p ?o }", JSON, method, sending))
    assert asked["boolean"] is True


def test_a_table_in_each_format(filled: Door) -> None:
    assert answer(wrapper(filled, SELECT, CSV)).decode() == "o\r\nsüß\r\n"
    assert answer(wrapper(filled, SELECT, TSV)).decode() == '?o\n"süß"\n'
    xml = answer(wrapper(filled, SELECT, XML))
    assert [node.firstChild.data for node in xml.getElementsByTagName("literal")] == ["süß"]


@pytest.mark.parametrize("form", [TURTLE, N3, XML, RDFXML, JSONLD])
def test_a_graph_in_each_format(filled: Door, form: str) -> None:
    found: Any = answer(wrapper(filled, "CONSTRUCT { ?s <urn:q> ?o } WHERE { GRAPH ?g { ?s ?p ?o } }", form))
    graph = found if isinstance(found, Graph) else Graph().parse(data=found, format="turtle")
    assert set(graph) == {(URIRef("urn:a"), URIRef("urn:q"), URIRef("urn:b"))}


@pytest.mark.parametrize("sending", [URLENCODED, POSTDIRECTLY])
def test_updates_are_seen_by_the_next_query_and_by_the_others(filled: Door, sending: str) -> None:
    update = wrapper(filled, "DELETE { ?s ?p ?o } INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }", JSON, POST, sending)
    assert update.isSparqlUpdateRequest()
    update.query()
    found = answer(wrapper(filled, SELECT))
    assert [row["o"]["value"] for row in found["results"]["bindings"]] == ["1"]
    filled.everywhere("/sparql?query=ASK%7B%3Curn:a%3E%20%3Curn:p%3E%201%7D", lambda text: text == "true", Accept="text/boolean")


def test_the_dataset_of_a_query_and_of_an_update_can_be_chosen(filled: Door) -> None:
    query = wrapper(filled, SELECT)
    query.addDefaultGraph("urn:g")
    assert [row["o"]["value"] for row in answer(query)["results"]["bindings"]] == ["urn:b"]
    update = wrapper(filled, "INSERT { <urn:new> ?p ?o } WHERE { ?s ?p ?o }", method=POST)
    update.addParameter("using-graph-uri", "urn:g")
    update.query()
    assert answer(wrapper(filled, "ASK { <urn:new> <urn:p> <urn:b> }"))["boolean"] is True


def test_what_is_malformed_is_told(filled: Door) -> None:
    with pytest.raises(QueryBadFormed, match="MALFORMED QUERY"):
        wrapper(filled, "SELECT ?o { ").query()
