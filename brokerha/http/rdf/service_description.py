"""What a SPARQL endpoint tells of itself when it is asked nothing: a service description as W3C defines it."""

from __future__ import annotations

from typing import Final

from pyoxigraph import BlankNode, NamedNode, RdfFormat, Triple, serialize

_SD: Final = "http://www.w3.org/ns/sparql-service-description#"
_FORMATS: Final = "http://www.w3.org/ns/formats/"
_TYPE: Final = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_LANGUAGES: Final = ("SPARQL10Query", "SPARQL11Query", "SPARQL11Update")
_SYNTAXES: Final = ("N-Triples", "N-Quads", "Turtle", "TriG", "RDF_XML", "JSON-LD")
_RESULTS: Final = (
    "SPARQL_Results_JSON",
    "SPARQL_Results_XML",
    "SPARQL_Results_CSV",
    "SPARQL_Results_TSV",
    *_SYNTAXES,
)
_INPUTS: Final = ("N3", *_SYNTAXES)


def service_description(endpoint: str, syntax: RdfFormat, *, union: bool, writable: bool) -> bytes:
    """The description of the service at an address; ``union``: its default graph is the union of all."""
    service, dataset, graph = BlankNode("service"), BlankNode("dataset"), BlankNode("graph")

    def sd(name: str) -> NamedNode:
        return NamedNode(f"{_SD}{name}")

    triples = [
        Triple(service, _TYPE, sd("Service")),
        Triple(service, sd("endpoint"), NamedNode(endpoint)),
        Triple(service, sd("defaultDataset"), dataset),
        Triple(dataset, _TYPE, sd("Dataset")),
        Triple(dataset, sd("defaultGraph"), graph),
        Triple(graph, _TYPE, sd("Graph")),
    ]
    languages = _LANGUAGES if writable else _LANGUAGES[:2]
    triples += [Triple(service, sd("supportedLanguage"), sd(name)) for name in languages]
    triples += [Triple(service, sd("resultFormat"), NamedNode(f"{_FORMATS}{name}")) for name in _RESULTS]
    triples += [Triple(service, sd("inputFormat"), NamedNode(f"{_FORMATS}{name}")) for name in _INPUTS if writable]
    if union:
        triples.append(Triple(service, sd("feature"), sd("UnionDefaultGraph")))
    return serialize(triples, format=syntax, prefixes={"sd": _SD}) or b""
