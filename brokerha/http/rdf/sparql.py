"""SPARQL 1.1 Protocol at ``/repositories/{id}/sparql``, and the parts that RDF4J's paths share.

    query    GET ?query=…      POST form query=…     POST application/sparql-query
    update                     POST form update=…    POST application/sparql-update

``default-graph-uri`` and ``named-graph-uri`` choose the dataset of a query, ``using-graph-uri`` and ``using-named-graph-uri`` that
of an update; together with USING or WITH in the text they are an error, as W3C requires. RDF4J's ``insert-graph-uri`` and
``remove-graph-uri``, bindings (``$name``), ``limit``, ``offset`` and ``distinct`` are also written into the text.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from pyoxigraph import BlankNode, NamedNode, RdfFormat, Triple, parse, serialize

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import FORM, Call, Parameters, address_of
from brokerha.http.door.passing import Parts, begin_write, done, is_long, naming_repository, read, result, write_to_repository
from brokerha.http.guard import demand_operations
from brokerha.http.users import WRITE
from brokerha.ingress import rdf_bodies
from brokerha.ingress.insert_data import InsertData
from brokerha.ingress.limits import is_plain_request
from brokerha.ingress.rdf_bodies import FORMATS, Graph, base_iri_of, context_text, term_of, utf8
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation
from brokerha.model.requests import Reply
from brokerha.model.reserved import about
from brokerha.model.reserved.staging import PART_BYTES, SIZE_LIMIT_BYTES
from brokerha.stores.rdf.formats import writable_triples
from brokerha.stores.sparql.protocol import (
    check_binding,
    is_graph_query,
    sliced,
    update_with,
    with_base,
    with_bindings,
    with_template_graphs,
)

# ---- Bodies that are longer than a transaction: taken as they come, and applied as a whole or not at all.
#
#     POST, PUT …/statements                 N-Triples, N-Quads ─┬─> parts of about 64 KiB, each staged ──> one commit (door/passing.py)
#     POST an update                         one INSERT DATA ────┘
#
# Each part is held only while it is staged, and answered before the next one is read.

_TRIG: Final = "application/trig"


async def is_large(call: Call, media_type: str) -> bool:
    """Tell whether a body is longer than a transaction, and can be cut into lines."""
    return rdf_bodies.is_of_lines(media_type) and await is_long(call)


async def add(
    call: Call, repository: str, media_type: str, contexts: Sequence[Graph], txid: TxId, *, is_cleared: bool = False
) -> Reply:
    """Add the statements of a body as one transaction; ``is_cleared``: in place of everything.

    Raises InvalidRequest, TooLarge, and the errors of writes.
    """
    options = {"contexts": [context_text(graph) for graph in contexts], "keep_labels": call.parameters().flag("preserveNodeId")}
    first: list[Operation] = [("clear", repository)] if is_cleared else []
    return await _stage_all(call, repository, txid, _lines(call), media_type, options, first)


async def insert(call: Call, repository: str, base_iri: str, txid: TxId) -> Reply:
    """Run an update of one INSERT DATA as one transaction. Raises as `add`."""
    return await _stage_all(call, repository, txid, _statements(call), _TRIG, {"base_iri": base_iri})


async def _stage_all(
    call: Call,
    repository: str,
    txid: TxId,
    documents: AsyncIterator[tuple[int, bytes]],
    media_type: str,
    options: dict[str, Any],
    first: Sequence[Operation] = (),
) -> Reply:
    async with Parts(call, txid) as parts:
        number = 0
        async for line, data in documents:
            number += 1
            try:
                is_plain = rdf_bodies.is_plain(data, media_type)
                nquads = await call.door.parsed(is_plain, rdf_bodies.nquads_of, data, media_type, txid=txid, part=number, **options)
            except InvalidRequest as error:
                raise InvalidRequest(f"{error} (counted from line {line} of the body)") from None
            if nquads:
                operations: list[Operation] = [*first, ("add", repository, nquads)]
                await demand_operations(call, operations)
                await parts.stage(operations)
                first = ()
        async with naming_repository(call, repository):
            return await parts.commit()


async def _lines(call: Call) -> AsyncIterator[tuple[int, bytes]]:
    """Yield whole lines of the body, each time with the number of the first."""
    rest, line = b"", 1
    async for piece in call.pieces(SIZE_LIMIT_BYTES):
        rest += piece
        while (cut := _cut(rest)) > 0:
            yield line, rest[:cut]
            line += rest.count(b"\n", 0, cut)
            rest = rest[cut:]
    if rest.strip():
        yield line, rest


async def _statements(call: Call) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the statements of an update, as TriG."""
    scanner = InsertData()
    async for piece in call.pieces(SIZE_LIMIT_BYTES):
        for document in scanner.feed(piece):
            yield document
    for document in scanner.end():
        yield document


def _cut(data: bytes) -> int:
    """Return the end of the next part; 0 when more must come."""
    if len(data) <= PART_BYTES:
        return 0
    cut = data.rfind(b"\n", 0, PART_BYTES) + 1 or data.find(b"\n") + 1
    if not cut and len(data) > BODY_LIMIT_BYTES:
        raise InvalidRequest(f"a line of the body is longer than {BODY_LIMIT_BYTES} bytes")
    return cut


QUERY_TYPE = "application/sparql-query"
UPDATE_TYPE = "application/sparql-update"
_SD: Final = "http://www.w3.org/ns/sparql-service-description#"
_NAMES: Final = "http://www.w3.org/ns/formats/"
_TYPE: Final = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_LANGUAGES: Final = ("SPARQL10Query", "SPARQL11Query", "SPARQL11Update")
_SYNTAXES: Final = ("N-Triples", "N-Quads", "Turtle", "TriG", "RDF_XML", "JSON-LD")
_RESULTS: Final = ("SPARQL_Results_JSON", "SPARQL_Results_XML", "SPARQL_Results_CSV", "SPARQL_Results_TSV", *_SYNTAXES)
_INPUTS: Final = ("N3", *_SYNTAXES)
_OF_QUERIES: Final = frozenset({"default-graph-uri", "named-graph-uri", "limit", "offset", "distinct"})
_OF_UPDATES: Final = frozenset({"using-graph-uri", "using-named-graph-uri", "insert-graph-uri", "remove-graph-uri"})
DESCRIPTIONS = ("text/turtle", "application/n-triples", "application/rdf+xml", "application/ld+json")


async def get(call: Call) -> Answer:
    """Evaluate a query in the URL; refuse an update there; without parameters return the service description."""
    parameters = call.parameters()
    if not parameters.pairs:
        return await _described(call)
    if parameters.one("update") is not None:
        raise InvalidRequest("an update is sent with POST: GET must not change anything")
    return await query(call, _needed(parameters, "query"), parameters)


async def _described(call: Call) -> Answer:
    repository = call.path_text("id")
    media_type = call.format_of("the description of the service", DESCRIPTIONS)
    outcome = await read(call, "about", repository, {})
    union = about.UNION in json.loads(outcome.body)[repository]["settings"]
    is_writable = call.front.role == "master"
    body = service_description(address_of(call), FORMATS[media_type], union=union, writable=is_writable)
    return result(outcome._replace(content_type=media_type, body=body))


def service_description(endpoint: str, syntax: RdfFormat, *, union: bool, writable: bool) -> bytes:
    """Return the description of the service at an address, by W3C; ``union``: its default graph is the union of all."""
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
    triples += [Triple(service, sd("resultFormat"), NamedNode(f"{_NAMES}{name}")) for name in _RESULTS]
    triples += [Triple(service, sd("inputFormat"), NamedNode(f"{_NAMES}{name}")) for name in _INPUTS if writable]
    if union:
        triples.append(Triple(service, sd("feature"), sd("UnionDefaultGraph")))
    return serialize(triples, format=syntax, prefixes={"sd": _SD}) or b""


async def post(call: Call) -> Answer:
    """Evaluate a query or update, in a form or in the body."""
    media_type = call.body_type(QUERY_TYPE, UPDATE_TYPE, FORM)
    if media_type == QUERY_TYPE:
        return await post_query(call)
    if media_type == UPDATE_TYPE:
        call.demand_entry(WRITE)
        return await update_of_body(call)
    form = await call.form()
    if form.one("query") is not None and form.one("update") is not None:
        raise InvalidRequest("a form holds a query or an update, not both")
    if form.one("update") is not None:
        call.demand_entry(WRITE)
        return await update_of_form(call, form)
    return await query(call, _needed(form, "query"), form)


async def post_query(call: Call) -> Answer:
    """Evaluate a query in a form or in the body."""
    if call.body_type(QUERY_TYPE, FORM) == QUERY_TYPE:
        if call.parameters().one("query") is not None:
            raise InvalidRequest("the query is given twice, in the URL and in the body: give it once")
        return await query(call, await call.text(), call.parameters())
    form = await call.form()
    return await query(call, _needed(form, "query"), form)


async def query(call: Call, text: str, parameters: Parameters) -> Answer:
    """Evaluate a query."""
    _check_common(parameters, _OF_UPDATES, "a query")
    text = await call.door.parsed(is_plain_request(text), with_base, text, base_of(call, parameters))
    limit = None if parameters.one("limit") is None else parameters.number("limit", 0)
    offset, distinct = parameters.number("offset", 0), parameters.flag("distinct")
    bindings = bindings_of(parameters)
    is_sliced = limit is not None or offset or distinct
    if bindings:
        text = await call.door.parsed(is_plain_request(text), with_bindings, text, bindings)
    if is_sliced:
        text = await call.door.parsed(is_plain_request(text), sliced, text, limit, offset, distinct=distinct)
    arguments = {
        "query": text,
        "accept": parameters.one("Accept") or call.accept(),
        "default-graph-uri": parameters.all("default-graph-uri"),
        "named-graph-uri": parameters.all("named-graph-uri"),
    }
    timeout_ms = call.time_of_query(parameters.one("timeout"))
    outcome = await read(call, "query", call.path_text("id"), arguments, timeout_ms=timeout_ms)
    if is_sliced and is_graph_query(text):
        body = await call.door.by_size(
            len(outcome.body), sliced_triples, outcome.body, outcome.content_type, limit, offset, distinct
        )
        outcome = outcome._replace(body=body)
    return result(outcome)


def sliced_triples(body: bytes, media_type: str, limit: int | None, offset: int, distinct: bool) -> bytes:
    """Return some of the triples of a result. Raises NotAcceptable."""
    syntax = FORMATS[media_type]
    triples: list[Triple] = [quad.triple for quad in parse(body, format=syntax)]
    if distinct:
        triples = list(dict.fromkeys(triples))
    part = triples[offset : None if limit is None else offset + limit]
    # Another triple of a subject can now be its first, which RDF/XML writes in another form: so all are checked again.
    return serialize(writable_triples(part) if syntax == RdfFormat.RDF_XML else part, format=syntax) or b""


def bindings_of(parameters: Parameters) -> dict[str, str]:
    """Return the terms of variables, from ``$name``. Raises InvalidRequest."""
    bindings: dict[str, str] = {}
    for name in sorted(parameters.names()):
        if name.startswith("$"):
            term = term_of(name, parameters.one(name)) or ""
            check_binding(name[1:], term)
            bindings[name[1:]] = term
    return bindings


def base_of(call: Call, parameters: Parameters) -> str:
    """Return the base of relative IRIs in a text: ``baseURI``, or the address of the request."""
    return base_iri_of(parameters.one("baseURI")) or address_of(call)


def _check_common(parameters: Parameters, others: frozenset[str], what: str) -> None:
    """Raise InvalidRequest for ``others``, which belong to the other kind of request, and for another language."""
    if found := sorted(parameters.names() & others):
        means = ", ".join(sorted((_OF_QUERIES | _OF_UPDATES) - others))
        raise InvalidRequest(f"{what} takes no {found[0]}, but {means}")
    language = parameters.one("queryLn") or "SPARQL"
    if language.upper() != "SPARQL":
        raise InvalidRequest(f"UNSUPPORTED QUERY LANGUAGE: queries are SPARQL, not {language!r}")
    # There is nothing to infer, so both answers are the same.
    parameters.flag("infer")


async def update_of_body(call: Call) -> Answer:
    """Run an update in the body."""
    txid = begin_write(call)
    if call.parameters().one("update") is not None:
        raise InvalidRequest("the update is given twice, in the URL and in the body: give it once")
    if await is_long(call):
        return done(await _insert(call, txid))
    text = await call.text()
    return await _update(call, await update_text(call, text, call.parameters()), txid, call.parameters())


async def _insert(call: Call, txid: TxId) -> Reply:
    """Run an update that is longer than a transaction."""
    parameters = call.parameters()
    _check_common(parameters, _OF_QUERIES, "an update")
    if words := [name for name in parameters.names() if name in _OF_UPDATES or name.startswith("$")]:
        raise InvalidRequest(f"a long update takes no {words[0]}: name graphs and values in its text")
    return await insert(call, call.path_text("id"), base_of(call, parameters), txid)


async def update_of_form(call: Call, form: Parameters) -> Answer:
    """Run an update in a form."""
    txid = begin_write(call)
    text = utf8(form.raw("update") or b"", "the update")
    return await _update(call, await update_text(call, text, form), txid, form)


async def update_text(call: Call, text: str, parameters: Parameters) -> str:
    """Write the parameters of an update into its text. Raises InvalidRequest."""
    _check_common(parameters, _OF_QUERIES, "an update")
    text = await call.door.parsed(is_plain_request(text), with_base, text, base_of(call, parameters))
    bindings = bindings_of(parameters)
    using, using_named = parameters.all("using-graph-uri"), parameters.all("using-named-graph-uri")
    insert, remove = parameters.one("insert-graph-uri"), parameters.all("remove-graph-uri")
    text = await call.door.parsed(is_plain_request(text), with_template_graphs, text, insert, remove)
    return await call.door.parsed(is_plain_request(text), update_with, text, bindings, using, using_named)


async def _update(call: Call, text: str, txid: str, parameters: Parameters) -> Answer:
    repository, timeout_ms = call.path_text("id"), call.time_of_query(parameters.one("timeout"))
    return done(await write_to_repository(call, repository, [("update", repository, text)], txid, timeout_ms))


def _needed(parameters: Parameters, name: str) -> str:
    value = parameters.one(name)
    if value is None:
        raise InvalidRequest(f"the parameter {name!r} is missing")
    return value
