"""What a small request changes may be large: it is applied everywhere up to a limit, and rejected beyond it, and the cluster goes on.

A line of the log travels in one message. One that is larger than a message may be would be sent again for ever, and nothing after it applied.
"""

from __future__ import annotations

import pytest

import brokerha
from brokerha.model.errors import Rejected
from tests.system.tx_site import TxSite, of_module

LONG = "urn:" + "long:" * 100
TRIPLES = 6_000
"""About 9 MB of effect from 150 kB of text."""
WAIT_S = 60.0


site = of_module("large", backups=1, others=1)


def insert(first: int, count: int) -> str:
    triples = " . ".join(f"l:{number} l: l:o" for number in range(first, first + count))
    return f"PREFIX l: <{LONG}> INSERT DATA {{ {triples} }}"


def test_a_small_text_with_a_large_effect(site: TxSite) -> None:
    with brokerha.connect(site.url("m2"), timeout=WAIT_S) as db:
        with pytest.raises(Rejected, match=r"10485760.*: split it"):
            db.update("main", insert(0, 2 * TRIPLES))
        assert db.query("main", "ASK { ?s ?p ?o }", min_lsn="latest") is False
        for first in (0, TRIPLES):
            db.update("main", insert(first, TRIPLES))
        db.put("t", "after", b"1")
        site.await_everywhere(db)
        with pytest.raises(Rejected, match=r"10485760.*: split it"):
            db.update("main", "DELETE WHERE { ?s ?p ?o }")
        part = f"DELETE {{ ?s ?p ?o }} WHERE {{ SELECT * {{ ?s ?p ?o }} LIMIT {TRIPLES} }}"
        for _ in range(2):
            db.update("main", part)
        # All of it at once has no limit, whoever asks for it and however.
        for first in range(3):
            db.update("main", insert(first * TRIPLES, TRIPLES))
        db.update("main", "CLEAR ALL")
        db.put("t", "after", b"2")
        site.await_everywhere(db)
        assert db.query("main", "ASK { ?s ?p ?o }", min_lsn="latest") is False
        site.run("repository", "add", "big")
        for first in range(3):
            db.update("big", insert(first * TRIPLES, TRIPLES))
        site.run("repository", "remove", "big", "--yes")
        # Another client removed it, at LSNs that this one has not seen: what this one writes now comes after them.
        db.put("t", "after", b"3")
        site.await_everywhere(db)
        assert "big" not in db.repositories()
    assert len(site.fingerprints()) == 1
