"""RDF4J's transaction documents (``application/x-rdftransaction``): a list of changes in XML that older clients send as one request.

    <transaction>
      <add><uri>urn:a</uri><uri>urn:p</uri><literal xml:lang="en">text</literal><contexts><uri>urn:g</uri></contexts></add>
      <remove><null/><uri>urn:p</uri><null/><contexts/></remove>        null is any term; among contexts it is the default graph
      <clear><contexts><null/></contexts></clear>                      no contexts: all graphs
      <setNamespace prefix="ex" name="http://example.org/"/>  <removeNamespace prefix="ex"/>  <clearNamespaces/>
      <sparql baseURI="…"><updateString>…</updateString><dataset>…</dataset><bindings>…</bindings></sparql>
    </transaction>

They become the operations of one transaction, in order. A document type is refused, so that no entity is expanded.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final
from xml.parsers import expat

from pyoxigraph import Literal, NamedNode

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call, address_of
from brokerha.http.door.passing import begin_write, done, read, write_to_repository
from brokerha.http.rdf import statements
from brokerha.ingress import rdf_bodies
from brokerha.ingress.limits import is_plain_request
from brokerha.ingress.rdf_bodies import contexts_of, term_of
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId
from brokerha.model.operations import Operation
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.reserved import about
from brokerha.stores.sparql.protocol import check_binding, update_with, with_base

MEDIA_TYPE: Final = "application/x-rdftransaction"
_STRUCTURE: Final = frozenset(
    {"transaction", "add", "remove", "clear", "contexts", "sparql", "updateString", "dataset", "bindings"}
    | {"setNamespace", "removeNamespace", "clearNamespaces", "defaultGraphs", "namedGraphs"}
)
_VALUES: Final = frozenset({"uri", "bnode", "literal", "null", "graph"})
_BINDINGS: Final = frozenset({"binding_uri", "binding_literal"})
_PATTERN: Final = ("subj", "pred", "obj")


async def post(call: Call) -> Answer:
    """Handle POST of RDF4J statements: a document of changes, or any other body."""
    if call.media_type() != MEDIA_TYPE:
        return await statements.post(call)
    txid = begin_write(call)
    repository = call.path_text("id")
    keep_labels = call.parameters().flag("preserveNodeId")
    body = await call.body()
    known: Sequence[str] = ()
    if b"clearNamespaces" in body:
        outcome = await read(call, "about", repository, {}, min_lsn=LATEST_LSN)
        known = sorted(json.loads(outcome.body)[repository]["namespaces"])
    plain = is_plain_request(body.decode("latin-1"))
    operations = await call.door.parsed(
        plain, operations_of, body, repository, txid, address_of(call), keep_labels=keep_labels, namespaces=known
    )
    if not operations:
        return Answer(204)
    return done(await write_to_repository(call, repository, operations, txid))


def operations_of(
    body: bytes, repository: str, txid: TxId, base: str, *, keep_labels: bool, namespaces: Sequence[str]
) -> list[Operation]:
    """Return the operations of a document. Raises InvalidRequest."""
    document = Document(repository, txid, base, keep_labels=keep_labels, namespaces=namespaces)
    document.read(body)
    return document.operations


class Document:
    """One document; ``namespaces`` are the present ones, for clearNamespaces."""

    def __init__(self, repository: str, txid: TxId, base: str, *, keep_labels: bool, namespaces: Sequence[str]) -> None:
        self.operations: list[Operation] = []
        self._repository = repository
        self._prefix = rdf_bodies.prefix_of(txid)
        self._labels: dict[str, str] = {}
        self._base = base
        self._keep_labels = keep_labels
        self._namespaces = namespaces
        self._added: list[str] = []
        self._values: list[str | None] = []
        self._text: list[str] = []
        self._attributes: list[dict[str, str]] = []
        self._update = ""
        self._update_base = base
        self._bindings: dict[str, str] = {}
        self._graphs: dict[str, list[str]] = {}

    def read(self, body: bytes) -> None:
        """Read the whole document. Raises InvalidRequest."""
        parser = expat.ParserCreate("UTF-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.StartDoctypeDeclHandler = _no_doctype
        try:
            parser.Parse(body, True)
        except expat.ExpatError as error:
            raise InvalidRequest(f"MALFORMED DATA: the body is not XML: {error}") from None
        self._flush()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag not in _STRUCTURE | _VALUES | _BINDINGS:
            raise InvalidRequest(f"MALFORMED DATA: <{tag}> is not understood in a transaction")
        self._attributes.append(attributes)
        self._text.clear()
        if tag == "sparql":
            self._update, self._bindings, self._graphs = "", {}, {}
            self._update_base = attributes.get("baseURI") or self._base

    def _end(self, tag: str) -> None:
        attributes, text = self._attributes.pop(), "".join(self._text)
        self._text.clear()
        if tag in _VALUES:
            self._values.append(_term(tag, text, attributes))
        elif tag in _BINDINGS:
            term = _term(tag.removeprefix("binding_"), text, {"datatype": attributes.get("dataType", ""), **attributes}) or ""
            check_binding(attributes.get("name", ""), term)
            self._bindings[attributes["name"]] = term
        elif tag in {"defaultGraphs", "namedGraphs"}:
            self._graphs[tag] = [str(value)[1:-1] for value in self._taken()]
        elif tag == "updateString":
            self._update = text
        elif tag == "add":
            self._add(self._taken())
        elif tag not in {"transaction", "contexts", "dataset", "bindings"}:
            self._flush()
            self._change(tag, attributes)

    def _change(self, tag: str, attributes: dict[str, str]) -> None:
        values, repository = self._taken(), self._repository
        prefix = attributes.get("prefix", "")
        if tag == "remove":
            pattern = {name: term_of(name, value) for name, value in zip(_PATTERN, _three(values), strict=True)}
            self.operations.append(statements.removal(repository, pattern, contexts_of(_contexts(values[3:]))))
        elif tag == "clear":
            self.operations.append(statements.clearing(repository, contexts_of(_contexts(values))))
        elif tag == "sparql":
            graphs = self._graphs.get("defaultGraphs", []), self._graphs.get("namedGraphs", [])
            text = update_with(with_base(self._update, self._update_base), self._bindings, *graphs)
            self.operations.append(("update", repository, text))
        elif tag == "setNamespace":
            name = attributes.get("name", "")
            if problem := about.prefix_problem(prefix) or about.iri_problem(name):
                raise InvalidRequest(problem)
            self.operations.append(("put", about.TABLE, about.namespace_key(repository, prefix), name.encode()))
        else:
            names = [prefix] if tag == "removeNamespace" else self._namespaces
            self.operations += [("delete", about.TABLE, about.namespace_key(repository, name)) for name in names]

    def _add(self, values: list[str | None]) -> None:
        triple = _three(values)
        if None in triple:
            raise InvalidRequest("MALFORMED DATA: a statement that is added has no null")
        for context in _contexts(values[3:]) or ["null"]:
            terms = [self._renamed(str(term)) for term in (*triple, context)]
            self._added.append(f"{' '.join(terms).removesuffix(' null')} .\n")

    def _renamed(self, term: str) -> str:
        """Rename an added blank node: it differs from those of the store; within the document its label identifies it."""
        if self._keep_labels or not term.startswith("_:"):
            return term
        return self._labels.setdefault(term, f"_:{self._prefix}b{len(self._labels) + 1}")

    def _flush(self) -> None:
        if self._added:
            lines = "".join(self._added).encode()
            nquads = rdf_bodies.nquads_of(lines, "application/n-quads", txid="", keep_labels=True)
            self.operations.append(("add", self._repository, nquads))
            self._added.clear()

    def _taken(self) -> list[str | None]:
        values, self._values = self._values, []
        return values


def _no_doctype(*_: object) -> None:
    raise InvalidRequest("MALFORMED DATA: a transaction has no document type")


def _three(values: Sequence[str | None]) -> Sequence[str | None]:
    if len(values) < 3:
        raise InvalidRequest("MALFORMED DATA: a statement has a subject, a predicate and an object")
    return values[:3]


def _contexts(values: Sequence[str | None]) -> list[str]:
    return ["null" if value is None else value for value in values]


def _term(tag: str, text: str, attributes: dict[str, str]) -> str | None:
    """Return a term in N-Triples. Raises InvalidRequest."""
    try:
        if tag == "null":
            return None
        if tag == "bnode":
            return f"_:{text.strip()}"
        if tag != "literal":
            return str(NamedNode(text.strip()))
        if attributes.get("encoding", "").lower() == "base64":
            text = base64.b64decode(text, validate=False).decode()
        language = attributes.get("xml:lang") or attributes.get("language")
        if language:
            return str(Literal(text, language=language))
        datatype = attributes.get("datatype")
        return str(Literal(text, datatype=NamedNode(datatype)) if datatype else Literal(text))
    except (ValueError, binascii.Error) as error:
        raise InvalidRequest(f"MALFORMED DATA: <{tag}> holds no term: {error}") from None
