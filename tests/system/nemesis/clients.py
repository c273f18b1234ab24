"""Clients of a cluster that suffers: each notes what it was told, and says afterwards what of that is not so.

They are:

    Publisher      a key and a message beside it at once: every second one until it is answered, the others once and with ``apart="refuse"``
    Taker          takes these messages, at most once or at least once
    Coordinator    two-phase transactions, some of which it leaves prepared for another one to end
    Counting       counts up in a key and in a graph, and reads back through its session, at any node
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import httpx2

from brokerha import errors
from brokerha.client import Session
from brokerha.model.ids import Xid
from brokerha.model.operations import Operation
from tests.system.nemesis.bank_books import COMMITTED
from tests.system.nemesis.bank_clients import decided
from tests.system.nemesis.endless import Endless

Connect = Callable[[], Session]
PAUSE_S: Final = 0.05
SETTLE_S: Final = 60.0
OK, REFUSED, UNKNOWN, READ = "ok", "refused", "unknown", "read"
NOWHERE: Final = (errors.InvalidRequest, errors.NotReady, errors.Unreachable, errors.Aborted, errors.Rejected)
"""What says that nothing happened and nothing will (docs/guarantees.md)."""
COMMITTED_SHARE: Final = 0.7
COUNT: Final = "DELETE WHERE { <urn:%(name)s> <urn:counter> ?v } ; INSERT DATA { <urn:%(name)s> <urn:counter> %(value)d }"
AGAIN: Final = (errors.OutcomeUnknown, errors.NotReady, errors.Unreachable)


class Telling(Endless):
    """A client that counts what it was told."""

    def __init__(self, name: str, connect: Connect, seed: int) -> None:
        super().__init__(name)
        self.told: Counter[str] = Counter()
        self.done = 0
        """Answers that say that something took place: its pauses are what a user waits."""
        self.wrong: list[str] = []
        """What no client may be told."""
        self.connect = connect
        self.draw = random.Random(seed)

    def tell(self, outcome: str) -> None:
        """Count an answer."""
        self.told[outcome] += 1
        self.done += outcome == OK

    def numbers(self) -> Iterator[int]:
        """1, 2, 3 with a rest before each, until it is ended."""
        for number in itertools.count(1):
            if self._stop.wait(PAUSE_S * (0.5 + self.draw.random())):
                return
            yield number

    def insist(self, write: Callable[[], object]) -> None:
        """Write until it is answered, ended or not."""
        while True:
            try:
                write()
            except AGAIN as error:
                self.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
                self.tell(UNKNOWN if isinstance(error, errors.OutcomeUnknown) else REFUSED)
                time.sleep(PAUSE_S)
            else:
                self.tell(OK)
                return


class Publisher(Telling):
    """See the head of the module; ``place`` names table and queue."""

    def __init__(self, name: str, connect: Connect, seed: int, place: str) -> None:
        super().__init__(name, connect, seed)
        self.place = place
        self.outcomes: dict[str, str] = {}
        """Of each body: what was told last, `UNKNOWN` while nothing was."""

    def work(self) -> None:
        with self.connect() as db:
            for number in self.numbers():
                body = f"{self.name}-{number}"
                operations = [("put", self.place, body.encode(), b""), ("publish", self.place, "text/plain", body.encode())]
                self.outcomes[body] = UNKNOWN
                if number % 2:
                    self.insist(lambda: db.write(operations, key=f"{self.place}.{body}", timeout=5))  # noqa: B023
                    self.outcomes[body] = OK
                else:
                    self.outcomes[body] = self._once(lambda: db.write(operations, timeout=self.draw.choice((1, 5)), apart="refuse"))  # noqa: B023

    def _once(self, write: Callable[[], object]) -> str:
        try:
            write()
            outcome = OK
        except errors.OutcomeUnknown:
            outcome = UNKNOWN
        except NOWHERE as error:
            self.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            outcome = REFUSED
        self.tell(outcome)
        return outcome


class Taker(Telling):
    """Takes messages for good, or in a transaction that writes down who took it."""

    def __init__(self, name: str, connect: Connect, seed: int, place: str, *, is_consuming: bool) -> None:
        super().__init__(name, connect, seed)
        self.place = place
        self.taken: list[str] = []
        """Bodies of what it surely took."""
        self.perhaps = 0
        """Times that it was not told whether it took one."""
        self._is_consuming = is_consuming

    def work(self) -> None:
        with self.connect() as db:
            for _ in self.numbers():
                try:
                    if self._is_consuming:
                        self._consume(db)
                    elif (message := db.accept(self.place, wait=0.2, timeout=5)) is not None:
                        self._took(message.body)
                except errors.OutcomeUnknown:
                    self.perhaps += 1
                    self.tell(UNKNOWN)
                except NOWHERE:
                    self.tell(REFUSED)

    def _consume(self, db: Session) -> None:
        body = b""
        for message in db.consume(self.place, count=1, wait=0.2, timeout=5):
            body = message.body
            message.transaction.put(f"{self.place}-seen", body, self.name)
        if body:
            self._took(body)

    def _took(self, body: bytes) -> None:
        self.taken.append(body.decode())
        self.tell(OK)


def bodies_in(db: Session, queue: str) -> list[str]:
    """What a queue holds, in its order."""
    found: list[str] = []
    after = None
    while page := db.queue(queue, after=after, limit=1000):
        found += [message.body.decode() for message in page]
        after = page[-1].id
    return found


def judge_queue(db: Session, place: str, publishers: Sequence[Publisher], takers: Sequence[Taker]) -> list[str]:
    """Each message that was told is there, or was taken, once; none that was refused, and nothing that nobody sent."""
    told = {body: outcome for publisher in publishers for body, outcome in publisher.outcomes.items()}
    keys = {key.decode() for key, _ in db.export(place).rows}
    wrong = [f"{body} was told {OK} and is lost" for body, outcome in told.items() if outcome == OK and body not in keys]
    wrong += [f"{body} was {REFUSED} and took place" for body, outcome in told.items() if outcome == REFUSED and body in keys]
    wrong += [f"{body} is there and nobody sent it" for body in keys - told.keys()]
    left = bodies_in(db, place)
    taken = [body for taker in takers for body in taker.taken]
    # What a consumer was not told of is in its table all the same.
    gone = {*taken, *(key.decode() for key, _ in db.export(f"{place}-seen").rows)}
    wrong += [f"{body} came {count} times" for body, count in Counter([*left, *taken]).items() if count > 1]
    wrong += [f"{body} was taken and is still in the queue" for body in gone & set(left)]
    wrong += [f"{body} is in the queue, and its key is not there" for body in {*left, *gone} - keys]
    lost, perhaps = keys - gone - set(left), sum(taker.perhaps for taker in takers)
    if len(lost) > perhaps:
        wrong.append(f"{len(lost)} messages are gone and {perhaps} takes are unknown: {sorted(lost)[:5]}")
    counts = db.queues().get(place, {"published": 0, "accepted": 0})
    if (counts["published"], counts["published"] - counts["accepted"]) != (len(keys), len(left)):
        wrong.append(f"the queue counts {counts}, with {len(keys)} keys and {len(left)} messages left")
    return wrong


class Coordinator(Telling):
    """See the head of the module; ``place`` names table and queue."""

    def __init__(self, name: str, connect: Connect, seed: int, place: str) -> None:
        super().__init__(name, connect, seed)
        self.place = place
        self.committed: dict[str, bool] = {}
        """Of each key: whether it was decided to commit it."""

    def work(self) -> None:
        for number in self.numbers():
            self._once(f"{self.name}-{number}")

    def _once(self, key: str) -> None:
        self.committed[key] = False
        with self.connect() as db, contextlib.ExitStack() as at_end:
            xid = db.xid(9, f"{self.place}.{key}")
            # A program that ends without a word tells nobody that it does.
            at_end.callback(db.transactions.clear)
            try:
                db.tpc_begin(xid, timeout=20)
                db.put(self.place, key, b"")
                db.publish(self.place, key)
                assert db.branch is not None
                txid = db.branch.txid
                db.tpc_prepare(timeout=self.draw.choice((2, 8)))
            except errors.BrokerhaError as error:
                # Nothing promised: nobody commits it, and whoever finds it prepared rolls it back.
                self.tell(UNKNOWN if isinstance(error, errors.OutcomeUnknown) else REFUSED)
                return
            self.committed[key] = self.draw.random() < COMMITTED_SHARE
        with self.connect() as db:
            end = partial(db.tpc_commit if self.committed[key] else db.tpc_rollback, xid, timeout=8)
            deadline = time.monotonic() + SETTLE_S
            while not self._is_ended(db, key, txid, end) and time.monotonic() < deadline:
                time.sleep(PAUSE_S)

    def _is_ended(self, db: Session, key: str, txid: str, end: Callable[[], object]) -> bool:
        """One try; what is prepared can be ended as was decided, whatever happens."""
        try:
            end()
        except errors.NotFound:
            with contextlib.suppress(errors.NotReady, errors.Unreachable, errors.OutcomeUnknown):
                became = decided(db.outcome(txid, timeout=5))
                if became and (became == COMMITTED) != self.committed[key]:
                    self.wrong.append(
                        f"{key} ({txid}) was prepared, decided to be committed: {self.committed[key]}, and is {became}"
                    )
                return bool(became)
        except (errors.Aborted, errors.Rejected) as error:
            self.wrong.append(
                f"{key} ({txid}) was prepared, decided to be committed: {self.committed[key]}, and its end says {error}"
            )
            return True
        except errors.BrokerhaError as error:
            self.tell(UNKNOWN if isinstance(error, errors.OutcomeUnknown) else REFUSED)
        else:
            self.tell(OK)
            return True
        return False


def judge_two_phase(db: Session, place: str, coordinators: Sequence[Coordinator]) -> list[str]:
    """What was decided took place, once; nothing else did, and nothing is left in doubt."""
    decided_so = {key: is_so for each in coordinators for key, is_so in each.committed.items()}
    for row in db.open_transactions():
        place_of, _, key = Xid.parse(row["xid"]).gtrid.decode().partition(".") if row["xid"] else ("", "", "")
        if place_of == place:
            db.end_transaction("commit" if decided_so[key] else "rollback", row["node"], row["txid"])
    keys = {key.decode() for key, _ in db.export(place).rows}
    bodies = bodies_in(db, place)
    wrong = [
        f"{key} was decided to be committed: {is_so}, and is {'there' if key in keys else 'not there'}"
        for key, is_so in decided_so.items()
        if is_so != (key in keys)
    ]
    if sorted(keys) != sorted(bodies):
        wrong.append(
            f"keys and messages of two-phase transactions differ: {sorted(keys ^ set(bodies))[:5]}, {len(bodies)} messages"
        )
    return wrong


class Counting(Telling):
    """See the head of the module: its thread counts, another one reads."""

    def __init__(self, name: str, connect: Connect, seed: int, place: str, doors: list[str]) -> None:
        super().__init__(name, connect, seed)
        self.place = place
        self.doors = doors
        """URLs of workers."""
        self.tried = self.known = self.known_lsn = 0
        self._reader = threading.Thread(target=self._run_reads, daemon=True)

    def work(self) -> None:
        with self.connect() as db, httpx2.Client(timeout=2, trust_env=False) as http:
            self._db, self._http = db, http
            self._reader.start()
            try:
                for value in self.numbers():
                    self.tried = value
                    update = COUNT % {"name": self.name, "value": value}
                    operations = [("put", self.place, self.name.encode(), b"%d" % value), ("update", "main", update)]
                    self.insist(lambda: self._write(operations, f"{self.place}.{self.name}.{value}"))  # noqa: B023
                    self.known = value
            finally:
                self._reader.join(60)

    def _write(self, operations: list[Operation], key: str) -> None:
        # The LSN first: whoever sees the value may ask for it.
        self.known_lsn = self._db.write(operations, key=key, timeout=5).lsn

    def _run_reads(self) -> None:
        try:
            ways: list[Callable[[int], int | None]] = [
                self._as_key,
                self._as_rdf,
                *(partial(self._at, door) for door in self.doors),
            ]
            for read in itertools.cycle(ways):
                if self._stop.wait(PAUSE_S):
                    return
                least, lsn = self.known, self.known_lsn
                value = read(lsn)
                if value is None:
                    self.told[REFUSED] += 1
                elif least <= value <= self.tried:
                    self.told[READ] += 1
                else:
                    self.wrong.append(
                        f"{self.name} read {value} by {read} after it knew {least} at LSN {lsn}, and had tried {self.tried}"
                    )
        except BaseException as fault:  # noqa: BLE001  (told by join)
            self.fault = fault

    def _as_key(self, _lsn: int) -> int | None:
        with contextlib.suppress(errors.NotReady, errors.Unreachable):
            return int(self._db.get(self.place, self.name, timeout=3) or 0)
        return None

    def _as_rdf(self, _lsn: int) -> int | None:
        with contextlib.suppress(errors.NotReady, errors.Unreachable):
            rows: Any = self._db.select("main", f"SELECT ?v {{ <urn:{self.name}> <urn:counter> ?v }}", timeout=3)
            return sum(int(row["v"].value) for row in rows)
        return None

    def _at(self, door: str, lsn: int) -> int | None:
        try:
            answer = self._http.get(f"{door}/kv/{self.place}/{self.name}", headers={"Brokerha-Min-Lsn": str(lsn)})
        except httpx2.HTTPError:
            return None
        return int(answer.content) if answer.status_code == 200 else 0 if answer.status_code == 404 else None
