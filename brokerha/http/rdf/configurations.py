"""The configuration of a repository as RDF, as RDF4J clients send and read it: there is one kind, with a title and one setting.

    [] a rep:Repository ; rep:repositoryID "r" ; rdfs:label "Orders" ;
       rep:repositoryImpl [ rep:repositoryType "openrdf:SailRepository" ; sr:sailImpl [ sail:sailType "openrdf:MemoryStore" ] ] ;
       <urn:brokerha:config#union-default-graph> true .

Both vocabularies of RDF4J are read, and the old one is written. Types that only say where the quads lie are all the same here, and
mean the default graph of RDF4J and GraphDB, the union of all graphs, unless the setting says otherwise; what would change the answers (inference, SHACL, federation, a remote endpoint) is refused and never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyoxigraph import BlankNode, Literal, NamedNode, Quad, RdfFormat, Triple, serialize

from brokerha.ingress.rdf_bodies import quads_of
from brokerha.model import about
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import Operation

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
_RULES: Final = frozenset(
    {"http://www.ontotext.com/config/graphdb#ruleset", "http://www.ontotext.com/trree/owlim#ruleset"}
)


def settings_of(body: bytes, media_type: str, repository: str) -> dict[str, bytes]:
    """The settings of a configuration. Raises InvalidRequest: no RDF, of another repository, or of a kind that does not exist here."""
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
        raise InvalidRequest(
            f"the configuration describes {len(subjects)} repositories (rep:repositoryID): it describes one"
        )
    [subject] = subjects
    for quad in quads:
        _check(quad, repository)
    # Who sends such a type expects that store's default graph, which is the union of all graphs.
    is_union = any(quad.predicate.value in _TYPES and getattr(quad.object, "value", "") != _OWN_TYPE for quad in quads)
    return _settings((quad for quad in quads if quad.subject == subject), is_union=is_union)


def _check(quad: Quad, repository: str) -> None:
    name, value = quad.predicate.value, getattr(quad.object, "value", "")
    if name in _IDS and value != repository:
        raise InvalidRequest(f"the configuration is of repository {value!r}, and the path says {repository!r}")
    if name in _TYPES and value not in _KNOWN_TYPES:
        known = ", ".join(sorted(_KNOWN_TYPES))
        raise InvalidRequest(
            f"there is no repository of type {value!r} here; these are taken, and all the same: {known}"
        )
    if name in _RULES and value not in {"", "empty"}:
        raise InvalidRequest(
            f"the rule set {value!r} would infer statements, and nothing is inferred here: use 'empty'"
        )


def _settings(quads: Iterable[Quad], *, is_union: bool) -> dict[str, bytes]:
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
    """What gives a repository exactly these settings."""
    return [
        ("put", about.TABLE, about.setting_key(repository, name), settings[name])
        if name in settings
        else ("delete", about.TABLE, about.setting_key(repository, name))
        for name in about.SETTINGS
        if name in settings or not is_new
    ]


def configuration(repository: str, settings: Mapping[str, str], syntax: RdfFormat) -> bytes:
    """The configuration of a repository with these settings."""
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
    """What people call a repository."""
    return settings.get(about.TITLE) or f"repository {repository}"
