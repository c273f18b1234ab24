"""Questions about the cluster: status, log, fingerprints, waiting for an LSN, and digests.

Digests describe one copy bucket by bucket, so that two copies can be compared without sending them whole. A worker answers for its
own copy; a master passes the question to one of its workers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Final

import msgpack
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, read
from brokerha.http.operating.families import exposition
from brokerha.http.users import READ
from brokerha.ingress.parsers import shared_parsers
from brokerha.model import VERSION
from brokerha.model.errors import InvalidRequest, TimedOut, WentBack
from brokerha.model.ids import Lsn
from brokerha.model.log_lineages import problem, read_rewinds
from brokerha.model.operation_checks import QUEUE
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.nodes.observing.probes import cpu_metrics

LINES = "application/x-ndjson"
LOG_LIMIT = 10_000
"""Most lines of one answer."""
_OF_ITEMS: Final = frozenset({"bits", "buckets", "limit"})
STATUS_TIMEOUT_MS = 2000
"""Longest wait of the status for silent masters."""


async def status(call: Call) -> Answer:
    """Return the status: the contract of ``status -o json``."""
    # Half of a short time, so that the answer, which names silent masters, still comes in time.
    timeout_ms = max(1, min(call.timeout_ms() // 2, STATUS_TIMEOUT_MS))
    return answer.as_json(await call.door.in_thread(call.front.status, timeout_ms))


async def log(call: Call) -> Answer:
    """Return lines of the synchronised queue, ``from`` to ``to`` (both included), at most 10,000 at a time.

    With ``effects`` they have the form for a store (ports.Front.logged). With ``entries`` they also have the masters' columns and
    the readable range (ports.Front.entries). Both are msgpack only. ``lineage`` is that of the line before ``from`` when it was
    read: 409 when that line is void.
    """
    await _check_lineage(call)
    if call.parameters().flag("entries"):
        return await _packed(call, call.front.entries, 0)
    if call.parameters().flag("effects"):
        return await _packed(call, call.front.logged, 1)
    media_type = call.format_of("the log", (LINES, MSGPACK, JSON))
    first, last = _range(call)
    is_bounded = call.parameters().one("to") is not None

    def lines() -> bytes:
        entries = call.front.log(first, last if is_bounded else 0)
        if media_type == MSGPACK:
            packed: bytes = msgpack.packb(entries)
            return packed
        if media_type == JSON:
            return json.dumps(entries, ensure_ascii=False).encode()
        return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()

    return Answer(200, await call.door.in_thread(lines), media_type, {"Vary": "Accept"})


async def _packed(call: Call, found: Callable[[Lsn, Lsn], Any], least: Lsn) -> Answer:
    call.format_of("the log with effects", (MSGPACK,))
    first, last = _range(call, least)

    def lines() -> bytes:
        packed: bytes = msgpack.packb(found(first, min(last, first + LOG_LIMIT - 1)))
        return packed

    return Answer(200, await call.door.in_thread(lines), MSGPACK, {"Vary": "Accept"})


async def _check_lineage(call: Call) -> None:
    """Raise WentBack when the log no longer holds the lines that the caller has read."""
    parameters = call.parameters()
    if parameters.one("lineage") is None:
        return
    lineage, read_lsn = parameters.number("lineage", 0), parameters.number("from", 1) - 1
    found = await call.door.in_thread(call.front.entries, 0, 0)
    if void := problem(read_rewinds(found.get("rewinds")), lineage, read_lsn):
        raise WentBack(void)


def _range(call: Call, least: Lsn = 1) -> tuple[Lsn, Lsn]:
    parameters = call.parameters()
    first = max(least, parameters.number("from", 1))
    last = parameters.number("to", first + LOG_LIMIT - 1)
    if last < first:
        raise InvalidRequest(f"from ({first}) is above to ({last})")
    return first, last


async def fingerprints(call: Call) -> Answer:
    """Return the fingerprint of one copy at ``lsn`` or later, and the one that each node of the cluster reports."""
    timeout_ms = call.timeout_of("timeout-s", call.parameters().one("timeout-s"))
    outcome = await read(call, "fingerprint", "", {}, min_lsn=call.parameters().number("lsn", 0), timeout_ms=timeout_ms)
    everything = await call.door.in_thread(call.front.status, STATUS_TIMEOUT_MS)
    fields = ("id", "role", "master", "state", "applied_lsn", "fingerprint", "items")
    copies = [{name: row.get(name) for name in fields} for row in everything["nodes"]]
    return answer.as_json({**json.loads(outcome.body), "copies": copies}, headers=age_of(outcome))


async def wait(call: Call) -> Answer:
    """Answer when ``workers`` workers of this site have applied ``lsn`` (a number, ``all`` or ``quorum``)."""
    parameters = call.parameters()
    if parameters.one("lsn") is None:
        raise InvalidRequest("the parameter 'lsn' is missing")
    lsn = parameters.number("lsn", 0)
    asked = parameters.one("workers") or "1"
    workers: int | str = asked if asked in {"all", "quorum"} else parameters.number("workers", 1)
    if workers == 0:
        raise InvalidRequest("workers is a number from 1 on, all, or quorum")
    timeout_ms = call.timeout_of("timeout-s", parameters.one("timeout-s"))
    future = call.front.wait_for(lsn, workers, timeout_ms)
    try:
        reached = await call.door.settled(future, timeout_ms)
    except TimeoutError:
        raise TimedOut(f"the node did not say in time whether LSN {lsn} is applied: try again") from None
    return answer.as_json(reached)


async def digests(call: Call) -> Answer:
    """Return, for each non-empty bucket of one copy, the number of items and the XOR of digests (stores/comparing/digests.py)."""
    parameters = call.parameters()
    bits = None if parameters.one("bits") is None else parameters.number("bits", 0)
    outcome = await read(call, "digests", "", {"bits": bits})
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


async def digest_items(call: Call) -> Answer:
    """Return the items of some buckets: ``{"bits": 10, "buckets": [[store, name, bucket], ...], "limit": 1000}``, in msgpack."""
    outcome = await read(call, "items", "", _items_asked(await call.body()))
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


def _items_asked(body: bytes) -> dict[str, Any]:
    try:
        fields: Any = unpack_foreign(body, use_list=True)
    except BROKEN:
        fields = None
    if not (isinstance(fields, dict) and fields.keys() <= _OF_ITEMS and isinstance(fields.get("buckets"), list)):
        raise InvalidRequest(f'the body is {{"bits", "buckets": [[store, name, bucket], …], "limit"}} as {MSGPACK}')
    return {**fields, "buckets": tuple(msgpack.packb(each) for each in fields["buckets"])}


# ---- Probes for supervisors and load balancers, and metrics for Prometheus.
#
#     /livez      the process works: its loop turns        otherwise restart it
#     /readyz     reads can be served, within a lag           otherwise send no reads; ?max-lag-s= &max-lag= &sync &timeout=
#     /writable   writes are taken now                      otherwise send them elsewhere
#
# Each line of an answer is one check: ``[+]journal ok`` or ``[-]broker …``.


async def livez(call: Call) -> Answer:
    """Tell whether the process works, also without its broker. Date is this machine's clock, for `brokerha doctor`."""
    _, lines = await call.door.in_thread(call.front.ready)
    is_alive = not any(line.startswith("[-]loop") for line in lines)
    said = "[+]loop ok" if is_alive else "[-]loop has ended: restart the node"
    return answer.text(said, 200 if is_alive else 503, {"Date": formatdate(usegmt=True)})


async def readyz(call: Call) -> Answer:
    """Tell whether reads can be served; ``sync`` first waits until all that is known now is applied."""
    parameters = call.parameters()
    max_lag_s = _seconds(parameters.one("max-lag-s"), "max-lag-s")
    max_lag = parameters.number("max-lag", 0) if parameters.one("max-lag") is not None else None
    if parameters.flag("sync"):
        timeout_ms = call.timeout_of("timeout", (parameters.one("timeout") or "").removesuffix("s"))
        try:
            await _caught_up(call, timeout_ms)
        except (TimedOut, TimeoutError) as error:
            return answer.text(f"[-]sync not finished in time {error}".rstrip(), 503)
    is_ready, lines = await call.door.in_thread(call.front.ready, max_lag, max_lag_s)
    return answer.text("\n".join(lines), 200 if is_ready else 503)


async def _caught_up(call: Call, timeout_ms: int) -> None:
    rows = (await call.door.in_thread(call.front.status, min(timeout_ms, STATUS_TIMEOUT_MS)))["nodes"]
    known = max((row.get("received_lsn") or 0 for row in rows), default=0)
    await call.door.settled(call.front.wait_for(known, 1, timeout_ms), timeout_ms)


async def writable(call: Call) -> Answer:
    """Tell whether writes are taken."""
    is_writable, reason = await call.door.in_thread(call.front.writable)
    return answer.text("[+]writable ok" if is_writable else f"[-]writable {reason}", 200 if is_writable else 503)


async def metrics(call: Call) -> Answer:
    """Return all numbers of the node and its door, in Prometheus' text format."""
    found = await call.door.in_thread(call.front.metrics)
    numbers = {name: number for name, number in found.items() if name[0] != "queue_messages" or call.may(READ, (QUEUE, name[1]))}
    for (method, status), count in call.door.answered.items():
        numbers["http_requests_total", method, str(status)] = count
    numbers["http_requests_under_way"] = call.door.requests
    numbers.update(await call.door.in_thread(cpu_metrics))
    numbers["parsers_ended_total"] = shared_parsers().ended
    front = call.front
    numbers["node_info", front.node_id, front.role, VERSION] = 1
    return Answer(200, exposition(numbers), CONTENT_TYPE_PLAIN_0_0_4)


def _seconds(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise InvalidRequest(f"{name} is a number of seconds, not {text!r}")
    return seconds
