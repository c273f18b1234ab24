"""Probes for supervisors and load balancers, and metrics for Prometheus.

    /livez      the process works: its loop turns        otherwise restart it
    /readyz     reads can be served, within a lag           otherwise send no reads; ?max-lag-s= &max-lag= &sync &timeout=
    /writable   writes are taken now                      otherwise send them elsewhere

Each line of an answer is one check: ``[+]journal ok`` or ``[-]broker …``.
"""

from __future__ import annotations

import math
from email.utils import formatdate

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.operating.cluster import STATUS_TIMEOUT_MS
from brokerha.http.operating.families import exposition
from brokerha.ingress.parsers import shared_parsers
from brokerha.model import VERSION
from brokerha.model.errors import InvalidRequest, TimedOut
from brokerha.nodes.observing.cpu_times import cpu_metrics


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
    numbers = dict(await call.door.in_thread(call.front.metrics))
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
