"""RDF4J repositories: list, query, create, remove, configure, size, contexts, and the version of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyoxigraph import (
    BlankNode,
    DefaultGraph,
    Literal,
    NamedNode,
    Quad,
    QueryResultsFormat,
    QuerySolutions,
    RdfFormat,
    Store,
    Triple,
    serialize,
)

from brokerha.http.door import answer
from brokerha.http.door.answer import TEXT, Answer
from brokerha.http.door.call import Call, root_of
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write, write_to_repository
from brokerha.http.guard import only_readable_graphs
from brokerha.http.rdf import sparql
from brokerha.http.users import READ, WRITE
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import Target, context_text, contexts_of, quads_of
from brokerha.model.errors import InvalidRequest, NotFound, UnsupportedType
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operation_checks import GRAPH
from brokerha.model.operations import Operation
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.reserved import about
from brokerha.ports.front import ReadOutcome

# ---- RDF4J namespaces at ``/repositories/{id}/namespaces``: short names of IRIs that clients share; they change no query.
#
#     GET     …/namespaces            all of them, as a result table        DELETE    removes all, 204
#     GET     …/namespaces/{prefix}   the IRI as text, or 404               PUT       the body is the IRI, 204
#                                                                           DELETE    204, even when it was missing
#
# They are keys of a reserved table (model/reserved/about.py), so they are in the log and in every copy. The prefix can be empty.

FORMATS = {
    "application/sparql-results+json": QueryResultsFormat.JSON,
    "application/json": QueryResultsFormat.JSON,
    "application/sparql-results+xml": QueryResultsFormat.XML,
    "application/xml": QueryResultsFormat.XML,
    "text/csv": QueryResultsFormat.CSV,
    "text/tab-separated-values": QueryResultsFormat.TSV,
}


def table(call: Call, variables: Sequence[str], rows: Sequence[Sequence[Target]], outcome: ReadOutcome) -> Answer:
    """Return a result table with these rows, in order. Raises NotAcceptable.

    These are small SPARQL result tables, RDF4J's form of a list of repositories or contexts. The engine writes them, so that they
    look like other results in each format. The rows go through a store in memory, because only that way takes terms of every kind,
    including blank nodes.
    """
    media_type = call.format_of("a table", list(FORMATS))
    store = Store()
    store.extend(
        Quad(NamedNode(f"urn:row:{number:09}"), NamedNode(f"urn:column:{name}"), cell)
        for number, row in enumerate(rows)
        for name, cell in zip(variables, row, strict=True)
    )
    columns = " ".join(f"?{name}" for name in variables)
    pattern = " . ".join(f"?row <urn:column:{name}> ?{name}" for name in variables)
    solutions = store.query(f"SELECT {columns} WHERE {{ {pattern} }} ORDER BY ?row")
    if not isinstance(solutions, QuerySolutions):
        raise InvariantBroken("a SELECT has solutions")
    body = solutions.serialize(format=FORMATS[media_type]) or b""
    return result(outcome._replace(content_type=media_type, body=body))


async def listed_namespaces(call: Call) -> Answer:
    """Return all namespaces, as a result table."""
    namespaces, outcome = await _known(call)
    rows = [(Literal(prefix), Literal(iri)) for prefix, iri in sorted(namespaces.items())]
    return table(call, ("prefix", "namespace"), rows, outcome)


async def clear(call: Call) -> Answer:
    """Delete all present namespaces."""
    txid = begin_write(call)
    repository = call.path_text("id")
    namespaces, outcome = await _known(call, LATEST_LSN)
    operations: list[Operation] = [
        ("delete", about.TABLE, about.namespace_key(repository, prefix)) for prefix in sorted(namespaces)
    ]
    if not operations:
        return Answer(204, headers=age_of(outcome))
    return done(await write_to_repository(call, repository, operations, txid))


async def get_namespace(call: Call) -> Answer:
    """Return the IRI of one prefix."""
    namespaces, outcome = await _known(call)
    prefix = call.path_text("prefix")
    if prefix not in namespaces:
        raise NotFound(f"repository {call.path_text('id')!r} has no namespace with the prefix {prefix!r}")
    # Without a new line at the end: clients take the whole body as the IRI.
    return Answer(200, namespaces[prefix].encode(), TEXT, age_of(outcome))


async def put_namespace(call: Call) -> Answer:
    """Set the IRI of one prefix."""
    txid = begin_write(call)
    repository, prefix = call.path_text("id"), call.path_text("prefix")
    iri = (await call.text()).strip()
    if problem := about.prefix_problem(prefix) or about.iri_problem(iri):
        raise InvalidRequest(problem)
    operation = ("put", about.TABLE, about.namespace_key(repository, prefix), iri.encode())
    return done(await write_to_repository(call, repository, [operation], txid))


async def delete_namespace(call: Call) -> Answer:
    """Delete one prefix."""
    txid = begin_write(call)
    repository, prefix = call.path_text("id"), call.path_text("prefix")
    if problem := about.prefix_problem(prefix):
        raise InvalidRequest(problem)
    operation = ("delete", about.TABLE, about.namespace_key(repository, prefix))
    return done(await write_to_repository(call, repository, [operation], txid))


async def _known(call: Call, min_lsn: int | None = None) -> tuple[dict[str, str], ReadOutcome]:
    repository = call.path_text("id")
    outcome = await read(call, "about", repository, {}, min_lsn=min_lsn)
    found: dict[str, Any] = json.loads(outcome.body)
    return found[repository]["namespaces"], outcome


UNION_SETTING: Final = "urn:brokerha:config#union-default-graph"
_REP, _SAIL = "http://www.openrdf.org/config/repository#", "http://www.openrdf.org/config/sail#"
_OF_SAIL: Final = "http://www.openrdf.org/config/repository/sail#"
_NEW: Final = "tag:rdf4j.org,2023:config/"
_TYPE: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
_BOOLEAN: Final = NamedNode("http://www.w3.org/2001/XMLSchema#boolean")
_IDS: Final = frozenset({f"{_REP}repositoryID", f"{_NEW}rep.id"})
_CLASSES: Final = frozenset({f"{_REP}Repository", f"{_NEW}Repository"})
_TYPES: Final = frozenset({f"{_REP}repositoryType", f"{_NEW}rep.type", f"{_SAIL}sailType", f"{_NEW}sail.type"})
_OWN_TYPE: Final = "brokerha:Repository"
_KNOWN_TYPES: Final = frozenset(
    {
        "openrdf:SailRepository",
        "openrdf:MemoryStore",
        "openrdf:NativeStore",
        "rdf4j:LmdbStore",
        "graphdb:SailRepository",
        "graphdb:FreeSailRepository",
        "graphdb:Sail",
        "graphdb:FreeSail",
        "owlim:MonitorRepository",
        "owlim:Sail",
        _OWN_TYPE,
    }
)
_RULES: Final = frozenset({"http://www.ontotext.com/config/graphdb#ruleset", "http://www.ontotext.com/trree/owlim#ruleset"})
PROTOCOL_VERSION = 12
"""Version of RDF4J's REST protocol; missing parts are refused, never ignored."""
CONFIG_TYPES = ("text/turtle", "application/n-triples", "application/rdf+xml", "application/ld+json", "application/trig")


def settings_of(body: bytes, media_type: str, repository: str) -> dict[str, bytes]:
    """Parse the settings of a configuration. Raises InvalidRequest: no RDF, another repository, or an unsupported kind."""
    try:
        quads: list[Quad] = list(quads_of(body, media_type, f"urn:repository:{repository}"))
    except (SyntaxError, ValueError) as error:
        raise InvalidRequest(f"MALFORMED DATA: the configuration is not {media_type}: {error}") from None
    subjects = {
        quad.subject
        for quad in quads
        if quad.predicate.value in _IDS
        or (quad.predicate.value == _TYPE and isinstance(quad.object, NamedNode) and quad.object.value in _CLASSES)
    }
    if len(subjects) != 1:
        raise InvalidRequest(f"the configuration describes {len(subjects)} repositories (rep:repositoryID): it describes one")
    [subject] = subjects
    for quad in quads:
        _check(quad, repository)
    # A client that sends such a type expects that store's default graph, which is the union of all graphs.
    is_union = any(quad.predicate.value in _TYPES and getattr(quad.object, "value", "") != _OWN_TYPE for quad in quads)
    return _settings_of((quad for quad in quads if quad.subject == subject), is_union=is_union)


def _check(quad: Quad, repository: str) -> None:
    name, value = quad.predicate.value, getattr(quad.object, "value", "")
    if name in _IDS and value != repository:
        raise InvalidRequest(f"the configuration is of repository {value!r}, and the path says {repository!r}")
    if name in _TYPES and value not in _KNOWN_TYPES:
        known = ", ".join(sorted(_KNOWN_TYPES))
        raise InvalidRequest(f"there is no repository of type {value!r} here; these are taken, and all the same: {known}")
    if name in _RULES and value not in {"", "empty"}:
        raise InvalidRequest(f"the rule set {value!r} would infer statements, and nothing is inferred here: use 'empty'")


def _settings_of(quads: Iterable[Quad], *, is_union: bool) -> dict[str, bytes]:
    settings: dict[str, bytes] = {}
    for quad in quads:
        value = getattr(quad.object, "value", "")
        if quad.predicate.value == _LABEL and value:
            settings[about.TITLE] = value.encode()
        elif quad.predicate.value == UNION_SETTING:
            if value not in {"true", "false"}:
                raise InvalidRequest(f"{UNION_SETTING} is true or false, not {value!r}")
            is_union = value == "true"
    if is_union:
        settings[about.UNION] = about.TRUE
    return settings


def operations_of(repository: str, settings: Mapping[str, bytes], *, is_new: bool) -> list[Operation]:
    """Return the operations that give a repository exactly these settings.

    The configuration of a repository is RDF, as RDF4J clients send and read it: one kind, with a title and one setting.

        [] a rep:Repository ; rep:repositoryID "r" ; rdfs:label "Orders" ;
           rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ; sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ] ;
           <urn:brokerha:config#union-default-graph> true .

    Both vocabularies of RDF4J are read, and the old one is written. Types that only tell where quads are stored are equal here.
    They mean the default graph of RDF4J and GraphDB, the union of all graphs, unless the setting says otherwise. Features that
    would change the answers (inference, SHACL, federation, a remote endpoint) are refused, never ignored.
    """
    return [
        ("put", about.TABLE, about.setting_key(repository, name), settings[name])
        if name in settings
        else ("delete", about.TABLE, about.setting_key(repository, name))
        for name in about.SETTINGS
        if name in settings or not is_new
    ]


def configuration(repository: str, settings: Mapping[str, str], syntax: RdfFormat) -> bytes:
    """Return the configuration of a repository with these settings, as RDF."""
    subject, implementation, sail = BlankNode("repository"), BlankNode("implementation"), BlankNode("sail")
    rows: list[tuple[BlankNode, str, NamedNode | BlankNode | Literal]] = [
        (subject, _TYPE, NamedNode(f"{_REP}Repository")),
        (subject, f"{_REP}repositoryID", Literal(repository)),
        (subject, _LABEL, Literal(title_of(repository, settings))),
        (subject, UNION_SETTING, Literal("true" if about.UNION in settings else "false", datatype=_BOOLEAN)),
        (subject, f"{_REP}repositoryImpl", implementation),
        (implementation, f"{_REP}repositoryType", Literal("openrdf:SailRepository")),
        (implementation, f"{_OF_SAIL}sailImpl", sail),
        (sail, f"{_SAIL}sailType", Literal("openrdf:NativeStore")),
    ]
    prefixes = {"rep": _REP, "sr": _OF_SAIL, "sail": _SAIL, "rdfs": _LABEL.removesuffix("label")}
    triples = [Triple(one, NamedNode(name), value) for one, name, value in rows]
    return serialize(triples, format=syntax, prefixes=prefixes) or b""


def title_of(repository: str, settings: Mapping[str, str]) -> str:
    """Return the title of a repository, or a default."""
    return settings.get(about.TITLE) or f"repository {repository}"


async def protocol(_call: Call) -> Answer:
    """Return the version of the protocol."""
    return answer.text(str(PROTOCOL_VERSION))


async def listed(call: Call) -> Answer:
    """Return all repositories that the caller can read, as a result table."""
    outcome = await read(call, "about", "", {})
    address = f"{root_of(call)}/repositories/"
    is_master = call.front.role == "master"
    rows = [
        (
            NamedNode(address + name), Literal(name), Literal(title_of(name, kept["settings"])),
            Literal(True), Literal(is_master and call.may_enter(WRITE, (GRAPH, name))),
        )
        for name, kept in json.loads(outcome.body).items()
        if call.may_enter(READ, (GRAPH, name))
    ]  # fmt: skip
    return table(call, ("uri", "id", "title", "readable", "writable"), rows, outcome)


async def get(call: Call) -> Answer:
    """Evaluate a query in the URL."""
    if call.parameters().one("query") is None:
        raise InvalidRequest("the parameter 'query' is missing")
    return await sparql.get(call)


async def post(call: Call) -> Answer:
    """Evaluate a query in a form or in the body."""
    return await sparql.post_query(call)


async def put(call: Call) -> Answer:
    """Create a repository, with the settings of a configuration if there is one."""
    txid = begin_write(call)
    name = call.path_text("id")
    settings = await _settings(call, name)
    operations = [("create-repository", name), *operations_of(name, settings, is_new=True)]
    return done(await write(call, operations, txid))


async def get_config(call: Call) -> Answer:
    """Return the configuration, as RDF."""
    name = call.path_text("id")
    media_type = call.format_of("a configuration", CONFIG_TYPES)
    outcome = await read(call, "about", name, {})
    settings = json.loads(outcome.body)[name]["settings"]
    body = configuration(name, settings, rdf_bodies.FORMATS[media_type])
    return result(outcome._replace(content_type=media_type, body=body))


async def put_config(call: Call) -> Answer:
    """Replace the settings of a repository by another configuration."""
    txid = begin_write(call)
    name = call.path_text("id")
    operations = operations_of(name, await _settings(call, name), is_new=False)
    return done(await write_to_repository(call, name, operations, txid))


async def _settings(call: Call, name: str) -> dict[str, bytes]:
    body = await call.body()
    if not body:
        return {}
    media_type = call.media_type()
    if media_type not in rdf_bodies.FORMATS:
        raise UnsupportedType(f"a configuration is RDF, not {media_type or 'nameless'!r}; it may also be left out")
    return await call.door.parsed(rdf_bodies.is_plain(body, media_type), settings_of, body, media_type, name)


async def delete(call: Call) -> Answer:
    """Remove a repository with all its content."""
    txid = begin_write(call)
    name = call.path_text("id")
    return done(await write_to_repository(call, name, [("remove-repository", name)], txid))


async def size(call: Call) -> Answer:
    """Return the number of quads, in all graphs or in the contexts."""
    contexts = tuple(context_text(graph) for graph in contexts_of(call.parameters().all("context")))
    return result(await read(call, "size", call.path_text("id"), {"context": contexts}))


async def contexts(call: Call) -> Answer:
    """Return the graphs that hold statements and that the caller can read, as a result table."""
    repository = call.path_text("id")
    outcome = await read(call, "contexts", repository, {})
    graphs = only_readable_graphs(call, repository, contexts_of(json.loads(outcome.body)))
    # The default graph has no name, so it is left out.
    rows = [[graph] for graph in graphs if not isinstance(graph, DefaultGraph)]
    return table(call, ("contextID",), rows, outcome)
