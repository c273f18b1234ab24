"""RDF4J transactions at ``/repositories/{id}/transactions``, with the implementation of `/tx`: only words and codes are RDF4J's.

    POST   …/transactions                    201, Location with the address of the transaction
    PUT    …/transactions/{tx}?action=ADD    RDF in the body, context, baseURI        200
           DELETE                            RDF in the body: removes these statements  200
           UPDATE                            SPARQL Update                            200
           QUERY, GET, SIZE                  reads, which see the changes so far      200
           PING                              keeps it open; its idle time in ms       200
           PREPARE                           checks that it is still open             200
           COMMIT                            200; ROLLBACK and the method DELETE: 204
    The action can also be in the path: …/transactions/{tx}/commit.

A read shows the state at one LSN with the transaction's own operations; two reads can show two LSNs. That is ``SNAPSHOT_READ`` and
everything below it, and the default. Under ``SNAPSHOT`` and ``SERIALIZABLE`` (model/outside/isolation.py) a read or the commit can
answer 409, because the repository was changed meanwhile. RDF4J's wild card in statements to remove stands for any term.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from brokerha.http.data import transactions
from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import FORM, Call, Parameters, root_of
from brokerha.http.door.passing import repository_names
from brokerha.http.guard import SAFE, demand_operations
from brokerha.http.rdf import repositories, sparql, statements
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import contexts_of, utf8
from brokerha.model.errors import InvalidRequest, NotFound, UnknownRepository, UnsupportedType, WrongState
from brokerha.model.operations import REJECTED, Operation
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE, SNAPSHOT

LEVELS: Final = {
    "NONE": READ_COMMITTED,
    "READ_UNCOMMITTED": READ_COMMITTED,
    "READ_COMMITTED": READ_COMMITTED,
    "SNAPSHOT_READ": READ_COMMITTED,
    "SNAPSHOT": SNAPSHOT,
    "SERIALIZABLE": SERIALIZABLE,
}
"""RDF4J's names -> own levels, which promise that or more."""
_LEVEL: Final = "isolation-level"
_SETTING: Final = "transaction-setting__"
_SETTING_OF_LEVEL: Final = "IsolationLevel"


async def begin(call: Call) -> Answer:
    """Open a transaction on one repository."""
    if (media_type := call.media_type()) == FORM:
        isolation = _isolation_of(await call.form())
    elif await call.body():
        raise UnsupportedType(f"content type {media_type or 'none'!r}: settings of a transaction are sent as {FORM}, or in the URL")
    else:
        isolation = _isolation_of(call.parameters())
    repository = call.path_text("id")
    if repository not in await repository_names(call):
        raise UnknownRepository(f"repository {repository!r} does not exist: PUT /repositories/ID creates one")
    facts = await transactions.begin(call, isolation=isolation)
    txid = str(facts["txid"])
    address = f"{root_of(call)}/repositories/{repository}/transactions/{quote(txid, safe='')}"
    return Answer(201, headers={"Location": address, "Brokerha-Tx": txid})


async def act(call: Call) -> Answer:
    """Take one action; RDF4J sends its name as a parameter, newer versions in the path."""
    in_path = "action" in call.scope["path_params"]
    name = call.path_text("action") if in_path else call.parameters().one("action") or ""
    action = _ACTIONS.get(name.upper())
    if action is None:
        raise InvalidRequest(f"there is no action {name!r} of a transaction; there are {', '.join(_ACTIONS)}")
    if call.method in SAFE and name.upper() not in _READS:
        # Any browser can follow a link, and so can a user who has only the right to read.
        call.error_status = 405
        call.error_headers = {"Allow": "POST, PUT"}
        raise InvalidRequest(f"{name.upper()} is not possible with {call.method}: use PUT")
    return await action(call)


async def delete(call: Call) -> Answer:
    """Roll back; an ended transaction without effect, as after a failed commit, counts as rolled back."""
    txid = call.path_text("tx")
    try:
        await transactions.step(call, "rollback", txid, {"session": transactions.session(call)})
    except (NotFound, WrongState):
        outcome = await call.door.in_thread(call.front.outcome, txid)
        if outcome is None or (outcome["state"] != "aborted" and outcome["outcome"] != REJECTED):
            raise
    return Answer(204, headers={"Brokerha-Tx": txid})


def _isolation_of(parameters: Parameters) -> str:
    """Return the requested level. Raises InvalidRequest for an unknown level or another setting."""
    isolation = READ_COMMITTED
    for name in sorted(parameters.names()):
        value = parameters.one(name) or ""
        if name == _LEVEL or (name.startswith(_SETTING) and name.removeprefix(_SETTING).rpartition(".")[2] == _SETTING_OF_LEVEL):
            level = value.rpartition("#")[2].rpartition("/")[2].upper()
            if level not in LEVELS:
                raise InvalidRequest(f"isolation level {value!r} is not known; {', '.join(LEVELS)} are")
            isolation = LEVELS[level]
        else:
            raise InvalidRequest(f"the setting {name.removeprefix(_SETTING)!r} is not known here: leave it out")
    return isolation


async def _write(call: Call, operations: list[Operation]) -> Answer:
    if operations:
        await demand_operations(call, operations)
        await transactions.step(call, "operations", call.path_text("tx"), {"first": None, "operations": operations})
    return Answer(200)


async def _add(call: Call) -> Answer:
    nquads = await _nquads(call)
    return await _write(call, [("add", call.path_text("id"), nquads)] if nquads else [])


async def _remove(call: Call) -> Answer:
    # A blank node of the store can only be addressed by its own label.
    nquads = await _nquads(call, keep_labels=True)
    return await _write(call, await call.door.by_size(len(nquads), statements.removals_of, call.path_text("id"), nquads))


async def _nquads(call: Call, *, keep_labels: bool = False) -> str:
    media_type = call.body_type(*rdf_bodies.FORMATS)
    contexts = contexts_of(call.parameters().all("context"))
    # Two bodies of one transaction must not share blank nodes by accident.
    txid = call.front.new_txid()
    return await statements.nquads_of(call, media_type, await call.body(), contexts, txid, keep_labels=keep_labels)


async def _update(call: Call) -> Answer:
    media_type = call.media_type()
    parameters = call.parameters()
    in_url = parameters.one("update")
    if media_type == sparql.UPDATE_TYPE:
        text = await call.text() or in_url or ""
    elif media_type == FORM:
        parameters = await call.form()
        text = utf8(parameters.raw("update") or b"", "the update")
    elif in_url is not None and not await call.body():
        text = in_url
    else:
        raise UnsupportedType(f"content type {media_type or 'none'!r}: send {sparql.UPDATE_TYPE} or {FORM}")
    text = await sparql.update_text(call, text, parameters)
    return await _write(call, [("update", call.path_text("id"), text)])


async def _query(call: Call) -> Answer:
    _inside(call)
    if call.parameters().one("query") is not None and call.media_type() not in {sparql.QUERY_TYPE, FORM}:
        return await sparql.get(call)
    return await sparql.post_query(call)


async def _get(call: Call) -> Answer:
    _inside(call)
    return await statements.get(call)


async def _size(call: Call) -> Answer:
    _inside(call)
    return await repositories.size(call)


async def _ping(call: Call) -> Answer:
    facts = await transactions.step(call, "ping", call.path_text("tx"), {})
    return answer.text(str(facts["timeout_ms"]))


async def _prepare(call: Call) -> Answer:
    """Check that the transaction is open: without an xid it has one phase, and the commit does the rest."""
    await transactions.step(call, "ping", call.path_text("tx"), {})
    return Answer(200)


async def _commit(call: Call) -> Answer:
    txid = call.path_text("tx")
    facts = await transactions.commit(call, txid, one_phase=True)
    return Answer(200, headers={"Brokerha-Tx": txid, "Brokerha-Lsn": int(facts.get("lsn") or 0)})


def _inside(call: Call) -> None:
    """Make the read see this transaction."""
    call.transaction = call.path_text("tx")


_READS: Final = frozenset({"GET", "SIZE", "QUERY"})
_ACTIONS: dict[str, Callable[[Call], Awaitable[Answer]]] = {
    "ADD": _add,
    "DELETE": _remove,
    "GET": _get,
    "SIZE": _size,
    "QUERY": _query,
    "UPDATE": _update,
    "PING": _ping,
    "PREPARE": _prepare,
    "COMMIT": _commit,
    "ROLLBACK": delete,
}
