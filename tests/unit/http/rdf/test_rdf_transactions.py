"""RDF4J's documents of changes in XML."""

from __future__ import annotations

import pytest

from tests.unit.http.asking import Node

STATEMENTS = "/repositories/main/statements"
TYPE = {"Content-Type": "application/x-rdftransaction"}


def send(node: Node, inside: str) -> int:
    return node.ask("POST", STATEMENTS, f"<?xml version='1.0' encoding='UTF-8'?><transaction>{inside}</transaction>", TYPE).status


def uris(*names: str) -> str:
    return "".join(f"<uri>urn:{name}</uri>" for name in names)


def lines(node: Node) -> list[str]:
    return sorted(node.get(STATEMENTS, Accept="application/n-quads").text.splitlines())


def test_changes_take_place_in_their_order(node: Node) -> None:
    assert (
        send(
            node,
            f"<add>{uris('a', 'p')}<literal xml:lang='de'>süß</literal><contexts/></add>"
            f"<add>{uris('a', 'p', 'b')}<contexts><uri>urn:g</uri><null/></contexts></add>"
            f"<add>{uris('a', 'p')}<literal datatype='urn:t'>&lt;x&gt;</literal></add>"
            f"<remove>{uris('a')}<null/>{uris('b')}<contexts><null/></contexts></remove>"
            f"<add>{uris('b', 'p')}<literal encoding='base64'>aGk=</literal><contexts>{uris('h')}</contexts></add>",
        )
        == 204
    )
    assert lines(node) == [
        '<urn:a> <urn:p> "<x>"^^<urn:t> .',
        '<urn:a> <urn:p> "süß"@de .',
        "<urn:a> <urn:p> <urn:b> <urn:g> .",
        '<urn:b> <urn:p> "hi" <urn:h> .',
    ]
    assert (
        send(
            node,
            f"<clear><contexts>{uris('g')}</contexts></clear><remove><null/><null/><null/><contexts>{uris('h')}</contexts></remove>",
        )
        == 204
    )
    assert len(lines(node)) == 2
    assert send(node, "<clear><contexts/></clear>") == 204
    assert (lines(node), len(node.front.results)) == ([], 3)


def test_updates_and_namespaces_may_be_among_them(node: Node) -> None:
    node.ask("PUT", "/repositories/main/namespaces/old", "urn:old:")
    assert (
        send(
            node,
            "<clearNamespaces/><setNamespace prefix='ex' name='http://example.org/'/><setNamespace prefix='gone' name='urn:x:'/>"
            "<removeNamespace prefix='gone'/><sparql baseURI='http://b/'><updateString>INSERT DATA { GRAPH &lt;urn:g&gt; { &lt;s&gt; "
            "&lt;urn:p&gt; 1 } }</updateString></sparql>"
            "<sparql><updateString>INSERT { ?s &lt;urn:q&gt; ?x } WHERE { ?s ?p ?o }</updateString><dataset><defaultGraphs>"
            "<graph>urn:g</graph></defaultGraphs></dataset><bindings><binding_literal name='x' language='en'>y</binding_literal></bindings></sparql>",
        )
        == 204
    )
    assert lines(node)[0] == '<http://b/s> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> <urn:g> .'
    assert lines(node)[1] == '<http://b/s> <urn:q> "y"@en .'
    assert node.get("/repositories/main/namespaces", Accept="text/csv").text.split() == [
        "prefix,namespace",
        "ex,http://example.org/",
    ]


def test_blank_nodes_are_named_after_the_transaction(node: Node) -> None:
    inside = f"<add><bnode>n</bnode>{uris('p')}<bnode>n</bnode></add><add><bnode>n</bnode>{uris('p', 'a')}</add>"
    assert (send(node, inside), send(node, inside)) == (204, 204)
    subjects = {line.split()[0] for line in lines(node)}
    assert len(lines(node)) == 4
    assert len(subjects) == 2
    assert "_:n" not in subjects


def test_a_label_means_one_node_in_all_of_a_document(node: Node) -> None:
    add = "<add><bnode>{}</bnode>" + uris("p") + "<literal>{}</literal></add>"
    apart = "<setNamespace prefix='x' name='urn:x:'/>"
    send(node, add.format("n", 1) + apart + add.format("m", 2) + apart + add.format("n", 3))
    subjects = [line.split()[0] for line in sorted(lines(node), key=lambda line: line.split()[2])]
    assert (len(subjects), len(set(subjects)), subjects[0] == subjects[2]) == (3, 2, True)


@pytest.mark.parametrize(
    "inside",
    [
        "<add/>",
        f"<add>{uris('a', 'p')}<null/></add>",
        f"<add>{uris('a', 'p')}<literal datatype='not an iri'>x</literal></add>",
        f"<add><literal>x</literal>{uris('p', 'a')}</add>",
        "<add><uri>relative</uri><uri>urn:p</uri><uri>urn:o</uri></add>",
        "<setNamespace prefix='a b' name='urn:x:'/>",
        "<sparql><updateString>x</updateString><bindings><binding_uri name='a b'>urn:x</binding_uri></bindings></sparql>",
        "<sparql><updateString>INSERT</updateString></sparql>",
        "<defaultInsertGraph>urn:g</defaultInsertGraph>",
        "<unknown/>",
        "<add>",
        "</transaction><transaction>",
    ],
)
def test_what_is_no_such_document_is_refused_and_changes_nothing(node: Node, inside: str) -> None:
    assert send(node, inside) == 400
    assert node.front.results == []


def test_a_document_type_is_refused(node: Node) -> None:
    body = "<!DOCTYPE t [<!ENTITY a 'aaaa'>]><transaction><add><uri>urn:&a;</uri></add></transaction>"
    answer = node.ask("POST", STATEMENTS, body, TYPE)
    assert (answer.status, "document type" in answer.text) == (400, True)


def test_without_the_repository_nothing_happens(node: Node) -> None:
    for inside in ("<clear/>", "<clearNamespaces/>"):
        body = f"<transaction>{inside}</transaction>"
        assert node.ask("POST", "/repositories/nowhere/statements", body, TYPE).status == 404
