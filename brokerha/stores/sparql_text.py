"""SPARQL as text: tokens, prologue, operations, and what brokerha refuses."""

from __future__ import annotations


def check_update(text: str) -> None:
    """Admission of an update request. Raises InvalidRequest (``MALFORMED QUERY: ...``), LOAD, SERVICE, reserved graph."""
    raise NotImplementedError


def check_query(text: str) -> None:
    """Admission of a query. Raises InvalidRequest (``MALFORMED QUERY: ...``), SERVICE, reserved graph."""
    raise NotImplementedError
