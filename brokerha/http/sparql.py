"""SPARQL 1.1 Protocol at ``/repositories/{id}/sparql``, and the parts of it that RDF4J's paths share.

    query    GET ?query=…      POST form query=…     POST application/sparql-query
    update                     POST form update=…    POST application/sparql-update

``default-graph-uri`` and ``named-graph-uri`` choose the dataset of a query. For an update the dataset is written into its
text (USING, WITH): the protocol's parameters for it are refused, never ignored. The same holds for RDF4J's parameters that
would change the result (bindings ``$name``, ``limit``, ``offset``, ``distinct``).
"""

from __future__ import annotations

from brokerha.http.answer import Answer
from brokerha.http.call import FORM, Call, Parameters, utf8
from brokerha.http.passing import begin_write, done, read, result, write_to_repository
from brokerha.model.errors import InvalidRequest, UnsupportedType

QUERY_TYPE = "application/sparql-query"
UPDATE_TYPE = "application/sparql-update"
_UPDATE_DATASET = ("using-graph-uri", "using-named-graph-uri", "remove-graph-uri", "insert-graph-uri")
_QUERY_CHANGING = ("limit", "offset", "distinct")


async def get(call: Call) -> Answer:
    """Query in the URL; an update may not stand there."""
    parameters = call.parameters()
    if parameters.one("update") is not None:
        raise InvalidRequest("an update is sent with POST: GET must not change anything")
    return await query(call, _needed(parameters, "query"), parameters)


async def post(call: Call) -> Answer:
    """Query or update, as a form or as the body itself."""
    media_type = call.media_type()
    if media_type == QUERY_TYPE:
        return await post_query(call)
    if media_type == UPDATE_TYPE:
        return await update_of_body(call)
    if media_type != FORM:
        raise UnsupportedType(f"content type {media_type or 'none'!r}: send {QUERY_TYPE}, {UPDATE_TYPE} or {FORM}")
    form = await call.form()
    if form.one("query") is not None and form.one("update") is not None:
        raise InvalidRequest("a form holds a query or an update, not both")
    if form.one("update") is not None:
        return await update_of_form(call, form)
    return await query(call, _needed(form, "query"), form)


async def post_query(call: Call) -> Answer:
    """Query as a form or as the body itself."""
    media_type = call.media_type()
    if media_type == QUERY_TYPE:
        if call.parameters().one("query") is not None:
            raise InvalidRequest("the query is given twice, in the URL and in the body: give it once")
        return await query(call, await call.text(), call.parameters())
    if media_type != FORM:
        raise UnsupportedType(f"content type {media_type or 'none'!r}: send {QUERY_TYPE} or {FORM}")
    form = await call.form()
    return await query(call, _needed(form, "query"), form)


async def query(call: Call, text: str, parameters: Parameters) -> Answer:
    """Evaluate a query."""
    names = parameters.names()
    changing = [name for name in names if name in _QUERY_CHANGING or name.startswith("$")]
    if changing:
        raise InvalidRequest(f"the parameter {changing[0]!r} is not supported: write it into the text of the query")
    language = parameters.one("queryLn") or "SPARQL"
    if language.upper() != "SPARQL":
        raise InvalidRequest(f"queries are SPARQL, not {language!r}")
    arguments = {
        "query": text,
        "accept": call.accept(),
        "default-graph-uri": parameters.all("default-graph-uri"),
        "named-graph-uri": parameters.all("named-graph-uri"),
    }
    seconds = parameters.one("timeout")
    timeout_ms = call.timeout_of("timeout", seconds) if seconds not in {None, "0"} else 0
    return result(await read(call, "query", call.path_text("id"), arguments, timeout_ms=timeout_ms))


async def update_of_body(call: Call) -> Answer:
    """An update that is the body itself."""
    txid = begin_write(call)
    if call.parameters().one("update") is not None:
        raise InvalidRequest("the update is given twice, in the URL and in the body: give it once")
    check_dataset(call.parameters())
    return await _update(call, await call.text(), txid)


async def update_of_form(call: Call, form: Parameters) -> Answer:
    """An update in a form."""
    txid = begin_write(call)
    check_dataset(form)
    return await _update(call, utf8(form.raw("update") or b"", "the update"), txid)


async def _update(call: Call, text: str, txid: str) -> Answer:
    repository = call.path_text("id")
    return done(await write_to_repository(call, repository, [("update", repository, text)], txid))


def check_dataset(parameters: Parameters) -> None:
    """Raise InvalidRequest for a dataset of an update outside of its text."""
    for name in _UPDATE_DATASET:
        if parameters.all(name):
            raise InvalidRequest(
                f"the parameter {name!r} is not supported: write USING or WITH into the text of the update"
            )


def _needed(parameters: Parameters, name: str) -> str:
    value = parameters.one(name)
    if value is None:
        raise InvalidRequest(f"the parameter {name!r} is missing")
    return value
