"""Every limit that a page names is the one of the code, and what a page says is missing is missing."""

from __future__ import annotations

import re

import pytest

from brokerha.http.data.keys import OPERATIONS_ITEMS_LIMIT
from brokerha.http.door.door import HttpLimits
from brokerha.http.door.server import HeadLimits
from brokerha.ingress import limits as ingress
from brokerha.model import control, operation_checks, operations, requests
from brokerha.model.outside import foreign_json
from brokerha.model.reserved import about, staging, table_snapshots
from brokerha.model.wire import client_wire
from brokerha.nodes.observing.master_view import LOG_LIMIT
from brokerha.stores.comparing import digests
from brokerha.stores.reads import kinds as read_kinds
from brokerha.stores.reads import observing
from brokerha.stores.sparql import modify as sparql_modify
from brokerha.stores.sparql import request as sparql_request
from brokerha.stores.tables import key_range, snapshots
from brokerha.transactions import transaction
from brokerha.transports import topology
from tests.docs.pages import pages, text_of

DOOR, HEAD, PARSER = HttpLimits(), HeadLimits(), ingress.ParserLimits()


def mib(size_bytes: int) -> str:
    """As the pages write it."""
    assert size_bytes % (1024 * 1024) == 0
    return f"{size_bytes // (1024 * 1024)} MiB"


def kib(size_bytes: int) -> str:
    assert size_bytes % 1024 == 0
    return f"{size_bytes // 1024} KiB"


NAMED = (
    ("docs/http.md", f"{DOOR.requests_limit:,} requests under way, {mib(DOOR.all_bodies_limit_bytes)} of bodies under way, {DOOR.thread_calls_limit} long requests"),
    ("docs/http.md", f"how long this request can take, 1 to {DOOR.timeout_limit_ms:,}; {DOOR.timeout_ms:,} by default"),
    ("docs/http.md", f"have {kib(HEAD.size_bytes)} and {HEAD.fields} headers (431); a head is there {HEAD.time_s:g} s after"),
    ("docs/http.md", f"JSON can be {foreign_json.DEPTH_LIMIT} lists and objects deep (400) and have {foreign_json.ITEMS_LIMIT:,} items (413), operations and groups of changes {OPERATIONS_ITEMS_LIMIT:,}"),
    ("docs/http.md", f"A key has up to {operation_checks.KEY_LIMIT_BYTES} bytes, the name of a table up to {operation_checks.TABLE_LIMIT_BYTES}."),
    ("docs/http.md", f"{table_snapshots.A_TABLE_LIMIT} snapshots of a table, {table_snapshots.TABLES_LIMIT:,} tables in a snapshot, {table_snapshots.COUNT_LIMIT:,} snapshots;"),
    ("docs/http.md", f"would keep for snapshots are {mib(snapshots.SIZE_LIMIT_BYTES)} together"),
    ("docs/http.md", f"{snapshots.DROP_ROWS:,} of them by the drop itself, and {snapshots.WRITE_ROWS} by each later"),
    ("docs/http.md", f"One range shows one moment and has at most {key_range.RANGE_LIMIT:,} keys."),
    ("docs/http.md", f"`limit` ({requests.RANGE_ROWS:,}, at most {key_range.RANGE_LIMIT:,}), `reverse`"),
    ("docs/http.md", f"{mib(operations.BODY_LIMIT_BYTES)} at most when packed, and {mib(DOOR.body_limit_bytes)} as a body."),
    ("docs/http.md", f"A prefix may be empty and has at most {about.PREFIX_LIMIT_BYTES}"),
    ("docs/http.md", f"At most {operations.OPERATIONS_LIMIT:,} operations and {mib(operations.BODY_LIMIT_BYTES)}."),
    ("docs/http.md", f"at most {DOOR.batch_limit:,} transactions"),
    ("docs/http.md", f"`limit` (100, at most {key_range.RANGE_LIMIT:,}); nothing is taken"),
    ("docs/http.md", f"at most {read_kinds.READS_LIMIT} reads, about at most {read_kinds.REPOSITORIES_LIMIT} repositories"),
    ("docs/http.md", f"both ends included, at most {LOG_LIMIT:,}"),
    ("docs/http.md", f"at most {digests.WANTED_LIMIT:,} buckets and {digests.ROWS_LIMIT:,} rows"),
    ("docs/amqp.md", f"At most {mib(operations.BODY_LIMIT_BYTES)} and {operations.OPERATIONS_LIMIT:,} operations in a transaction."),
    ("docs/amqp.md", f"The message has at most {mib(client_wire.MESSAGE_LIMIT_BYTES)}."),
    ("docs/amqp.md", f"at most {read_kinds.READS_LIMIT} about at most {read_kinds.REPOSITORIES_LIMIT} repositories"),
    ("docs/amqp.md", f"{mib(topology.WRITES_QUEUE_BYTES)} of writes"),
    ("docs/amqp.md", f"{client_wire.DEFAULT_TIMEOUT_MS:,} by default"),
    ("docs/amqp.md", f"`brokerha.rejected` keeps {mib(topology.REJECTED_QUEUE_BYTES)}"),
    ("docs/transactions.md", f"At most {operations.OPERATIONS_LIMIT:,} operations and {mib(operations.BODY_LIMIT_BYTES)} (else"),
    ("docs/transactions.md", f"At most {mib(staging.SIZE_LIMIT_BYTES)} and {staging.ITEMS_LIMIT:,} quads, keys and messages; {staging.COUNT_LIMIT} of them in a cluster"),
    ("docs/http.md", f"a body above {mib(operations.BODY_LIMIT_BYTES)}, up to {mib(staging.SIZE_LIMIT_BYTES)}"),
    ("docs/transactions.md", f"What it changes is {mib(operations.EFFECT_LIMIT_BYTES)} at most"),
    ("docs/transactions.md", f"a range of keys, up to `limit` {observing.RANGE_ROWS:,}"),
    ("docs/transactions.md", f"At most {transaction.READS_LIMIT:,} such findings and {mib(read_kinds.RESULT_LIMIT_BYTES)} in one answer."),
    ("docs/http.md", f"What one transaction changes is {mib(operations.EFFECT_LIMIT_BYTES)} at most"),
    ("docs/control.md", f"{control.CHECKS_LIMIT} checks; a query of {kib(control.TEXT_LIMIT_BYTES)}; an expectation of {kib(control.EXPECTED_LIMIT_BYTES)} and {control.ROWS_LIMIT:,} rows"),
    ("docs/ingress.md", f"| body of a request | {mib(DOOR.body_limit_bytes)}, compressed or decoded"),
    ("docs/ingress.md", f"| body of one transaction | {mib(operations.BODY_LIMIT_BYTES)}, {operations.OPERATIONS_LIMIT:,} operations |"),
    ("docs/ingress.md", f"| items of JSON | {foreign_json.ITEMS_LIMIT:,} (operations and groups of keys {OPERATIONS_ITEMS_LIMIT:,}); {foreign_json.DEPTH_LIMIT} levels |"),
    ("docs/ingress.md", f"| a WHERE clause or query | {sparql_request.CLAUSE_LIMIT_TOKENS:,} words and signs"),
    ("docs/ingress.md", f"| XML entities | {ingress.ENTITIES_LIMIT}, each of {ingress.ENTITY_LIMIT_CHARS:,} characters"),
    ("docs/ingress.md", f"{mib(ingress.EXPANDED_LIMIT_BYTES)} when written out"),
    ("docs/ingress.md", f"| processor time to parse one body | {PARSER.cpu_s} s, and {PARSER.cpu_s_per_mib} s for each MiB |"),
    ("docs/ingress.md", f"| memory to parse one body | {mib(PARSER.memory_bytes)}, and {PARSER.memory_per_byte} times its size |"),
    ("docs/ingress.md", f"A body of at most {kib(ingress.PLAIN_LIMIT_BYTES)} with at most {ingress.PLAIN_BRACKETS} opening brackets"),
    ("docs/ingress.md", f"more than {sparql_modify.SOLUTIONS_LIMIT:,} solutions, or {sparql_modify.EFFECT_LIMIT_QUADS:,} changed quads"),
)  # fmt: skip
"""Page, and a sentence of it with the number of the code."""

MISSING = {
    "With two masters or without a majority": ("brokerha/model/states.py", "no-majority"),
    "Masters are added and replaced with": ("brokerha/sync/membership.py", "masters are added and taken out with split-recovery = quorum"),
    "One transaction has at most 8 MiB, and changes at most 10 MiB": ("brokerha/model/operations.py", "it travels as one line of the log, in one message"),
    "Messages are given out by one master at a time": ("brokerha/model/reserved/claims.py", "belongs to a master that is gone, and its claims count no more"),
    "It cannot stop a query that the engine is computing": ("brokerha/nodes/reads/pool.py", "stuck"),
    "A store keeps the value of a literal": ("brokerha/cli/data/load.py", "are kept by value, not as spelled"),
    "Users of the HTTP door have roles": ("brokerha/http/users.py", "the graph of that kind is a repository"),
    "An archive that begins above LSN 1": ("brokerha/pipeline/report_page.html", "The archive does not begin with LSN 1, so it cannot tell what there is"),
    "Workers of one master are one site": ("brokerha/client/http_wire.py", "reads follow the writes"),
}  # fmt: skip
"""How each limit of the README begins, and words of the code that would not be there without it: file, words."""

UNTRUE = (
    "neither TLS nor users", "cannot be replaced", "no command yet", "until their disks are full", "nearest node for a client",
)  # fmt: skip
"""Said once, and no longer so."""


def flat(page: str) -> str:
    return re.sub(r"\s+", " ", text_of(page))


@pytest.mark.parametrize(("page", "sentence"), NAMED, ids=lambda each: each[:40])
def test_a_named_limit_is_that_of_the_code(page: str, sentence: str):
    assert re.sub(r"\s+", " ", sentence) in flat(page)


def test_each_limit_of_the_readme_is_still_one():
    part = text_of("README.md").split("\n## Limits\n")[1].split("\n## ")[0]
    named = re.findall(r"^- (.+)$", part, re.MULTILINE)
    for limit in named:
        (start,) = [start for start in MISSING if limit.startswith(start)]
        path, words = MISSING[start]
        assert words in text_of(path), f"{path} does not say {words!r} any more: is this still so? {limit}"
    assert len(named) == len(MISSING)


def test_no_page_says_what_is_no_longer_so():
    told = [(page, words) for page in pages() if "/decisions/" not in page for words in UNTRUE if words in flat(page)]
    assert not told
