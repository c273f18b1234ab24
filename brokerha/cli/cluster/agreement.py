"""``brokerha wait`` and ``brokerha verify``: is a transaction applied, and are all copies equal?

A copy is a worker. The status of the cluster names each worker with its applied LSN and the fingerprint of its content at that LSN.
Two copies agree when they have equal fingerprints at one LSN. During writes, copies are seen at different LSNs, so their
fingerprints are remembered until all have been seen at one LSN.

`verify` waits for copies that are in sync or are just being judged. All others (off, loading, out of sync, not heard) are named and
not waited for.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, Cluster, FormatOption, columns, until_reached
from brokerha.cli.common.output import Format
from brokerha.cli.common.terminal import progress
from brokerha.model import states
from brokerha.model.errors import Aborted, BrokerhaError, NotReady, OutcomeUnknown, Rejected, TimedOut, Unreachable
from brokerha.model.operations import REJECTED

if TYPE_CHECKING:
    from brokerha.client import Client

PAUSE_FIRST_S = 0.02
PAUSE_MOST_S = 0.5
LAST_QUESTION_S = 2.0
ALL = "all"
QUORUM = "quorum"
SEEN_LIMIT = 1000
"""Most LSNs for which fingerprints are remembered."""
WAITED_FOR = states.SERVING | {states.UNINITIALISED}
"""States of copies that are compared, now or in a moment."""


class Deadline:
    """Remaining time, and pauses that grow while nothing changes."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s
        self._pause_s = PAUSE_FIRST_S
        self._never = threading.Event()

    @property
    def left_s(self) -> float:
        """Remaining seconds; at least the time that another site needs to answer, so that the last question can succeed."""
        return max(LAST_QUESTION_S, self._end_s - time.monotonic())

    def pause(self) -> bool:
        """Pause before the next question to other sites; return False when the time is over."""
        if time.monotonic() >= self._end_s:
            return False
        self._never.wait(min(self._pause_s, max(0.0, self._end_s - time.monotonic())))
        self._pause_s = min(self._pause_s * 2, PAUSE_MOST_S)
        return True


def wait(
    cluster: Cluster,
    target: Annotated[str, typer.Argument(metavar="LSN|TXID", help="A position of the log, or the id of a transaction.")],
    on: Annotated[str, typer.Option("--on", metavar="all|quorum|N", help="How many copies must have applied it.")] = ALL,
    is_txid: Annotated[bool, typer.Option("--txid", help="Take a number for the id of a transaction.")] = False,
) -> Answer:
    """Wait until a transaction is applied on copies.

    On all copies of the cluster, on more than half of them, or on N.

    Exit code 2 when the time is over, or when the transaction was rejected.
    """
    if on not in {ALL, QUORUM} and not (on.isdecimal() and int(on) >= 1):
        raise typer.BadParameter(f"--on {on!r}: write all, quorum, or a number of copies")
    deadline = Deadline(cluster.timeout_s)
    txid = target if is_txid or not target.isdecimal() else ""
    lsn = _lsn_of(cluster.client, txid, deadline) if txid else int(target)
    done, copies = _wait_for_copies(cluster.client, lsn, on, deadline)
    return Answer(
        {"lsn": lsn, "txid": txid or None, "copies": done, "of": copies},
        text=f"LSN {lsn:,} is applied on {len(done)} of {copies} copies: {', '.join(done)}",
    )


def _lsn_of(client: Client, txid: str, deadline: Deadline) -> int:
    """Wait for the LSN of a transaction. Raises Rejected, TimedOut."""
    while True:
        answer = client.outcome(txid, timeout=deadline.left_s)
        if answer is not None and answer.get("outcome") == REJECTED:
            raise Rejected(f"transaction {txid} was rejected: {answer.get('reason')}", txid, answer["lsn"])
        if answer is not None and answer.get("state") == "aborted":
            raise Aborted(f"transaction {txid} was rolled back: {answer.get('reason')}")
        if answer is not None and answer.get("lsn"):
            return int(answer["lsn"])
        if not deadline.pause():
            known = "is unknown" if answer is None else "has no place in the order"
            raise TimedOut(f"transaction {txid} {known} after {deadline.timeout_s:g} s")


def _wait_for_copies(client: Client, lsn: int, on: str, deadline: Deadline) -> tuple[list[str], int]:
    """Return the names of copies that have applied an LSN, and the number of copies. Raises TimedOut."""
    while True:
        answer = client.status(timeout=deadline.left_s)
        copies, hidden = copies_of(answer), hidden_sites(answer)
        done = [copy["id"] for copy in copies if (copy["applied_lsn"] or 0) >= lsn]
        needed = int(on) if on.isdecimal() else len(copies) if on == ALL else len(copies) // 2 + 1
        if needed > len(copies) and not hidden:
            raise typer.BadParameter(f"--on {on}: the cluster has {len(copies)} copies")
        if copies and len(done) >= needed and (on.isdecimal() or not hidden):
            return done, len(copies)
        if not deadline.pause():
            late = [f"{copy['id']} is {_place(copy)}" for copy in copies if copy["id"] not in done]
            missing = ", ".join([*late, *hidden])
            raise TimedOut(
                f"LSN {lsn} is applied on {len(done)} of {len(copies)} copies after {deadline.timeout_s:g} s ({missing})"
            )


def _place(copy: Mapping[str, Any]) -> str:
    """Return the position of a copy, with its state if that is the cause."""
    state = "" if copy["state"] in WAITED_FOR else f"{copy['state']} "
    return f"{state}at {copy['applied_lsn']}"


def copies_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the workers."""
    return [node for node in answer["nodes"] if node["role"] == "worker"]


def hidden_sites(answer: Mapping[str, Any]) -> list[str]:
    """Return the masters that do not answer, so that their copies are unknown."""
    silent = [node for node in answer["nodes"] if node["role"] == "master" and node["state"] == states.UNREACHABLE]
    return [f"the copies of {node['id']} are not known" for node in silent]


def verify(
    cluster: Cluster,
    deep: Annotated[
        bool, typer.Option("--deep", help="Have every worker compute its fingerprint anew from all of its data first.")
    ] = False,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Compare all copies at one LSN.

    Exit code 0 when all are equal; 1 when those in sync are, and others, which are named, could not be compared; 2 when copies
    differ or are damaged, which are named, or could not be compared in time.

    --deep finds damage that fingerprints do not show. It reads everything at the rate of scrub-items-per-s, so it takes its time;
    --timeout-s is then for each question. With --url it is the workers of that master.
    """
    looks = look_at_all(cluster) if deep else None
    deadline, seen = Deadline(cluster.timeout_s), _Seen()
    while True:
        answer = cluster.client.status(timeout=deadline.left_s)
        seen.take(copies_of(answer), hidden_sites(answer))
        if (verdict := seen.verdict()) is not None:
            return _show(verdict, looks, chosen)
        if not deadline.pause():
            raise TimedOut(f"the copies were not seen at one LSN within {deadline.timeout_s:g} s ({seen.positions()})")


class _Seen:
    """Fingerprints of copies, by LSN."""

    def __init__(self) -> None:
        self._by_lsn: dict[int, dict[str, str]] = {}
        self._homes: dict[str, str] = {}
        """Master of every copy that was seen: a differing one can be out of sync before the others reach its LSN."""
        self._last: list[dict[str, Any]] = []
        self._skipped: list[dict[str, Any]] = []
        self._hidden: list[str] = []

    def take(self, copies: list[dict[str, Any]], hidden: list[str]) -> None:
        self._hidden = hidden
        self._homes |= {copy["id"]: copy["master"] for copy in copies}
        self._last = [copy for copy in copies if copy["state"] in WAITED_FOR]
        self._skipped = [copy for copy in copies if copy["state"] not in WAITED_FOR]
        for copy in self._last:
            if copy["applied_lsn"] is not None and (copy["fingerprint"] or copy["applied_lsn"] == 0):
                self._by_lsn.setdefault(copy["applied_lsn"], {})[copy["id"]] = copy["fingerprint"]
        while len(self._by_lsn) > SEEN_LIMIT:
            del self._by_lsn[min(self._by_lsn)]

    def verdict(self) -> dict[str, Any] | None:
        """Return what is certain: a difference at any LSN, or all copies equal at one; else None."""
        names = {copy["id"] for copy in self._last}
        for lsn in sorted(self._by_lsn, reverse=True):
            found = self._by_lsn[lsn]
            if len(set(found.values())) > 1 or (names and names <= found.keys() and not self._hidden):
                return {**_verdict(lsn, found, self._homes), "skipped": [_named(copy) for copy in self._skipped]}
        return None

    def positions(self) -> str:
        places = [f"{copy['id']} {copy['state']} at {copy['applied_lsn']}" for copy in (*self._last, *self._skipped)]
        return ", ".join([*places, *self._hidden]) or "no copy"


def _named(copy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: copy.get(name) for name in ("id", "state", "reason", "applied_lsn")}


def _verdict(lsn: int, found: Mapping[str, str], homes: Mapping[str, str]) -> dict[str, Any]:
    """Return the copies that differ from the most frequent fingerprint; all of them after a tie."""
    ranking = Counter(found.values()).most_common(2)
    is_tie = len(ranking) > 1 and ranking[0][1] == ranking[1][1]
    differ = sorted(name for name, fingerprint in found.items() if is_tie or fingerprint != ranking[0][0])
    is_equal = len(ranking) == 1
    return {
        "lsn": lsn,
        "equal": is_equal,
        "fingerprint": None if is_tie else ranking[0][0],
        "differ": [] if is_equal else differ,
        "copies": [{"id": name, "master": homes[name], "fingerprint": found[name]} for name in sorted(found)],
    }


def _show(verdict: Mapping[str, Any], looks: list[dict[str, Any]] | None, chosen: Format) -> int:
    if looks is not None and chosen is Format.TABLE:
        output.write({}, looks, chosen, LOOK_COLUMNS)
    copies: Sequence[Mapping[str, Any]] = verdict["copies"]
    whole = verdict if looks is None else {**verdict, "deep": looks}
    output.write(whole, copies, chosen, {"id": "COPY", "fingerprint": "FINGERPRINT"})
    unsure = [f"{copy['id']} is {copy['state']}" + (f": {copy['reason']}" if copy["reason"] else "") for copy in verdict["skipped"]]
    for line in unsure:
        exits.say(f"not compared: {line}")
    code = exits.DEGRADED if unsure else exits.DONE
    if looks is not None:
        code = max(code, _say_looks(looks))
    if verdict["equal"]:
        exits.say(f"{len(copies)} copies are equal at LSN {verdict['lsn']:,}")
        return code
    exits.say(
        f"copies differ at LSN {verdict['lsn']:,}: {', '.join(verdict['differ'])}; {_remedy(verdict, is_deep=looks is not None)}"
    )
    return exits.FAILED


def _say_looks(looks: Sequence[Mapping[str, Any]]) -> int:
    for look in looks:
        if look["result"] != "equal":
            exits.say(f"{look['result']}: {look['id'] or 'the workers of ' + str(look['master'])}: {look['reason']}")
    results = {look["result"] for look in looks}
    if "damaged" in results:
        exits.say("a damaged copy is replaced by its master as soon as another worker of the site is in sync: brokerha worker list")
        return exits.FAILED
    return exits.DEGRADED if "unknown" in results else exits.DONE


def _remedy(verdict: Mapping[str, Any], *, is_deep: bool) -> str:
    """Return what to do: replace one copy, or repair a whole site."""
    differ = set(verdict["differ"])
    homes = {copy["id"]: copy["master"] for copy in verdict["copies"]}
    sites = {home for name, home in homes.items() if name in differ}
    good = [name for name in homes if name not in differ]
    for site in sorted(map(str, sites)):
        if good and all(name in differ for name, home in homes.items() if home == site):
            return f"the whole site of {site} differs: brokerha worker repair {site} --from {good[0]}"
    if not good and is_deep:
        how = "worker repair MASTER --from WORKER" if len(sites) > 1 else "worker trust ID"
        return f"no content has the most copies: choose the one that is to stay: brokerha {how}"
    if not good:
        return "no content has the most copies: brokerha verify --deep shows which are damaged"
    return f"replace each by a copy of another worker: brokerha worker copy {min(differ)}"


# ---- verify --deep: every worker first checks all of its own data
#
# Each master starts a scrub at each of its workers; all run concurrently, at the rate of the setting ``scrub-items-per-s``, while
# reads and writes go on. A worker that is not in sync is named and not checked. The master of a damaged copy replaces it, even if
# this command has ended.

POLL_S = 0.5
EQUAL = "equal"
"""The fingerprint computed from the data equals the one in the log."""
DAMAGED = "damaged"
"""They differ; the reason has both."""
UNKNOWN = "unknown"
"""No result: not in sync, too far behind to compare, or the scrub failed."""
LOOK_COLUMNS = columns("id=COPY", "master", "result", "lsn", "items", "reason")


@dataclass(slots=True)
class _Look:
    """One worker's scrub."""

    master: str
    worker: str
    request: str = ""
    done: int = 0
    total: int = 0
    row: dict[str, Any] | None = None
    """The result; None while it runs."""

    def end(self, result: str, reason: str = "", lsn: int | None = None, items: int | None = None) -> None:
        """Set the result."""
        self.row = {
            "id": self.worker, "master": self.master, "result": result, "lsn": lsn, "items": items, "reason": reason,
        }  # fmt: skip


def look_at_all(cluster: Cluster) -> list[dict[str, Any]]:
    """Scrub at every worker, and wait for all; return a row for each. Raises Unreachable when no master answers."""
    looks, silent = _begin(cluster)
    running = [look for look in looks if look.row is None]
    # The bar needs the amount of data, which comes with the first reports.
    while any(look.row is None and not look.total for look in running):
        _follow_all(cluster, running)
    done = 0
    with progress(f"{len(running)} copies", sum(look.total for look in running), "items") as meter:
        while any(look.row is None for look in running):
            _follow_all(cluster, running)
            meter.advance(sum(look.done for look in running) - done)
            done = sum(look.done for look in running)
    rows = [look.row for look in looks if look.row is not None]
    rows += [
        {"id": None, "master": master, "result": UNKNOWN, "lsn": None, "items": None, "reason": reason}
        for master, reason in silent.items()
    ]
    return rows


def _begin(cluster: Cluster) -> tuple[list[_Look], dict[str, str]]:
    answers, silent = cluster.worker_lists()
    looks = []
    for name, answer in answers.items():
        for worker in answer["workers"]:
            look = _Look(name, worker["id"])
            looks.append(look)
            if not worker["alive"] or worker["state"] not in states.SERVING:
                why = worker["reason"] or ("" if worker["alive"] else "not heard")
                look.end(UNKNOWN, f"{worker['state']}: {why}" if why else worker["state"])
                continue
            try:
                task = cluster.command(name, "scrub", worker=look.worker)
            except (NotReady, OutcomeUnknown) as error:
                look.end(UNKNOWN, str(error))
            else:
                look.request = task["request"]
                _take(look, task)
    return looks, silent


def _follow_all(cluster: Cluster, looks: list[_Look]) -> None:
    time.sleep(POLL_S)
    for look in looks:
        if look.row is None:
            _follow(cluster, look)


def _follow(cluster: Cluster, look: _Look) -> None:
    """Ask for the progress of one scrub; a master that is away for longer than the timeout ends it."""
    try:
        _take(look, until_reached(cluster.timeout_s, POLL_S)(cluster.command, look.master, "task", request=look.request))
    except (Unreachable, TimedOut) as error:
        look.end(UNKNOWN, f"its master does not answer any more: {error}")
    except BrokerhaError as error:
        look.end(UNKNOWN, f"its master was started again meanwhile: {error}")


def _take(look: _Look, task: dict[str, Any]) -> None:
    look.done, look.total = task["done"], task["total"] or look.total
    answer = task["answer"]
    if task["state"] == "failed":
        look.end(DAMAGED if answer.get("damaged") else UNKNOWN, task["reason"])
    elif task["state"] == "done" and answer.get("is_compared", True):
        look.end(EQUAL, "", answer.get("lsn"), answer.get("items"))
    elif task["state"] == "done":
        look.end(UNKNOWN, "the log went on too far meanwhile to compare: try again", answer.get("lsn"), answer.get("items"))
