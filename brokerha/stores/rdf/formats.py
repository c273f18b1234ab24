"""The result format for a reader: the formats of the engine, and the preference in an Accept header.

    choose(SOLUTIONS, "text/csv;q=0.5, application/sparql-results+json")    ->  JSON
    choose(SOLUTIONS, "*/*")                                                ->  the first of the list
    choose(GRAPHS, "image/png")                                             ->  NotAcceptable

The most specific range that matches a format gives its quality. Among equal qualities the order of the lists below decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyoxigraph import QueryResultsFormat, RdfFormat

from brokerha.model.errors import NotAcceptable


class ResultFormat(NamedTuple):
    """A format: its media type, and its name in the engine."""

    media_type: str
    engine: QueryResultsFormat | RdfFormat | None
    """None stands for the plain word true or false."""


SOLUTIONS: Final = (
    ResultFormat("application/sparql-results+json", QueryResultsFormat.JSON),
    ResultFormat("application/json", QueryResultsFormat.JSON),
    ResultFormat("application/sparql-results+xml", QueryResultsFormat.XML),
    ResultFormat("application/xml", QueryResultsFormat.XML),
    ResultFormat("text/csv", QueryResultsFormat.CSV),
    ResultFormat("text/tab-separated-values", QueryResultsFormat.TSV),
)
"""Formats for SELECT."""

BOOLEANS: Final = (*SOLUTIONS, ResultFormat("text/boolean", None))
"""Formats for ASK."""

TRIPLES: Final = (
    ResultFormat("application/n-triples", RdfFormat.N_TRIPLES),
    ResultFormat("text/turtle", RdfFormat.TURTLE),
    ResultFormat("application/n-quads", RdfFormat.N_QUADS),
    ResultFormat("application/trig", RdfFormat.TRIG),
    ResultFormat("application/rdf+xml", RdfFormat.RDF_XML),
    ResultFormat("application/ld+json", RdfFormat.JSON_LD),
    ResultFormat("application/x-turtle", RdfFormat.TURTLE),
    ResultFormat("text/x-nquads", RdfFormat.N_QUADS),
    ResultFormat("application/x-trig", RdfFormat.TRIG),
    ResultFormat("text/n3", RdfFormat.N3),
    ResultFormat("text/plain", RdfFormat.N_TRIPLES),
)
"""Formats for CONSTRUCT and DESCRIBE."""

QUADS: Final = (TRIPLES[2], *TRIPLES)
"""Formats for statements: the same, but the default format keeps the graphs."""


def choose(formats: Sequence[ResultFormat], accept: str | None) -> ResultFormat:
    """Return the format that the header prefers. Raises NotAcceptable, which names the available ones."""
    ranges = _ranges(accept or "*/*")
    best: ResultFormat | None = None
    best_quality = 0.0
    for candidate in formats:
        quality = _quality(candidate.media_type, ranges)
        if quality > best_quality:
            best, best_quality = candidate, quality
    if best is None:
        offered = ", ".join(dict.fromkeys(candidate.media_type for candidate in formats))
        raise NotAcceptable(f"no format for Accept: {(accept or '')[:200]}; there are {offered}")
    return best


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for item in accept.split(","):
        media_range, *parameters = (piece.strip().lower() for piece in item.split(";"))
        if media_range:
            found.append((media_range, _quality_parameter(parameters)))
    return found


def _quality_parameter(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    kind = media_type.partition("/")[0]
    for wanted in (media_type, f"{kind}/*", "*/*"):
        qualities = [quality for media_range, quality in ranges if media_range == wanted]
        if qualities:
            return max(qualities)
    return 0.0
