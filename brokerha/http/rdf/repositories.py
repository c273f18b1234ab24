"""RDF4J repositories: list, query, create, remove, configure, size, contexts, and the version of the protocol."""

from __future__ import annotations

import json

from pyoxigraph import DefaultGraph, Literal, NamedNode

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, root_of
from brokerha.http.door.passing import age_of, begin_write, done, read, result, write, write_to_repository
from brokerha.http.guard.users import READ, WRITE
from brokerha.http.rdf import sparql
from brokerha.http.rdf.configurations import configuration, operations_of, settings_of, title_of
from brokerha.http.rdf.tables import table
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import context_text, contexts_of
from brokerha.model.errors import InvalidRequest, UnsupportedType

PROTOCOL_VERSION = 12
"""Of RDF4J's REST protocol; what is missing of it is refused, never ignored."""
CONFIG_TYPES = (
    "text/turtle",
    "application/n-triples",
    "application/rdf+xml",
    "application/ld+json",
    "application/trig",
)


async def protocol(_call: Call) -> Answer:
    """The version of the protocol."""
    return answer.text(str(PROTOCOL_VERSION))


async def listed(call: Call) -> Answer:
    """All repositories that the caller may read, as a result table."""
    outcome = await read(call, "about", "", {})
    address = f"{root_of(call)}/repositories/"
    is_master = call.front.role == "master"
    rows = [
        (
            NamedNode(address + name), Literal(name), Literal(title_of(name, kept["settings"])),
            Literal(True), Literal(is_master and call.may(WRITE, name)),
        )
        for name, kept in json.loads(outcome.body).items()
        if call.may(READ, name)
    ]  # fmt: skip
    return table(call, ("uri", "id", "title", "readable", "writable"), rows, age_of(outcome))


async def get(call: Call) -> Answer:
    """A query in the URL."""
    if call.parameters().one("query") is None:
        raise InvalidRequest("the parameter 'query' is missing")
    return await sparql.get(call)


async def post(call: Call) -> Answer:
    """A query as a form or as the body itself."""
    return await sparql.post_query(call)


async def put(call: Call) -> Answer:
    """Create a repository, with the settings of a configuration if there is one."""
    txid = begin_write(call)
    name = call.path_text("id")
    settings = await _settings(call, name)
    operations = [("create-repository", name), *operations_of(name, settings, is_new=True)]
    return done(await write(call, operations, txid))


async def get_config(call: Call) -> Answer:
    """The configuration, as RDF."""
    name = call.path_text("id")
    media_type = call.format_of("a configuration", CONFIG_TYPES)
    outcome = await read(call, "about", name, {})
    settings = json.loads(outcome.body)[name]["settings"]
    body = configuration(name, settings, rdf_bodies.FORMATS[media_type])
    return result(outcome._replace(content_type=media_type, body=body))


async def put_config(call: Call) -> Answer:
    """Give a repository the settings of another configuration."""
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
    """Remove a repository with all that is in it."""
    txid = begin_write(call)
    name = call.path_text("id")
    return done(await write_to_repository(call, name, [("remove-repository", name)], txid))


async def size(call: Call) -> Answer:
    """Number of quads, in all graphs or in the contexts."""
    contexts = tuple(context_text(graph) for graph in contexts_of(call.parameters().all("context")))
    return result(await read(call, "size", call.path_text("id"), {"context": contexts}))


async def contexts(call: Call) -> Answer:
    """Graphs that hold statements, as a result table."""
    outcome = await read(call, "contexts", call.path_text("id"), {})
    # None of them is the default graph, which has no name.
    rows = [
        [graph for graph in contexts_of([name]) if not isinstance(graph, DefaultGraph)]
        for name in json.loads(outcome.body)
    ]
    return table(call, ("contextID",), rows, age_of(outcome))
