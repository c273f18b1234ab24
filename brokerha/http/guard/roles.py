"""What a path is about, which says whose role counts there. The role itself stands beside each method of each path (app.py).

Probes are open. Reading needs ``read``; so does what is sent with POST because it is long and changes nothing. What changes
content needs ``write``, what changes repositories or the cluster ``admin``. A handler that finds out from the request that
it changes more asks for more (`Call.demand`, rights.py).
"""

from __future__ import annotations

from enum import Enum

OPEN = ""
"""For everybody."""


class Place(Enum):
    """What a path is about."""

    ALL = "all"
    """The cluster, tables, queues: the role for everything counts."""
    REPOSITORY = "repository"
    """The repository in the path: the role there counts."""
    NAMED = "named"
    """Stores that the request names: who has the role anywhere may come in, and is asked for each of them (rights.py)."""


_NAMED = frozenset({"/tx", "/tx/batch", "/tx/{id}", "/tx/{id}/{action}", "/together", "/repositories", "/protocol"})


def place_of(path: str) -> Place:
    """What a path is about."""
    if path in _NAMED:
        return Place.NAMED
    return Place.REPOSITORY if path.startswith("/repositories/{id}") else Place.ALL
