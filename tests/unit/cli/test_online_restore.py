"""`brokerha restore --online`: what is refused before anything is changed, and what is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgpack
import pytest

from brokerha.cli.backup.restore import ATTEMPTS, EarlierCopy, OnlineRestore
from brokerha.client import Client
from brokerha.client.outcomes import Written
from brokerha.model.errors import Conflict, InvalidRequest, NotReady, Rejected, TooLarge
from brokerha.model.fingerprints import packed
from brokerha.model.operations import LoggedRow, Operation, Put, pack_effect
from brokerha.ports.store import ReadAnswer
from brokerha.stores.backup.restore_target import Target
from brokerha.stores.reads.tables import RESULT_LIMIT_BYTES
from brokerha.stores.tables.queue_change import Message


class Fake:
    """A cluster whose log has one put in each line; somebody may write before each write."""

    def __init__(self, first: int = 1, last: int = 6, *, value: bytes = b"x", writes_between: int = 0) -> None:
        self.first, self.last = first, last
        self.value = value
        self.writes_between = writes_between
        self.written: list[list[Operation]] = []
        self.reason = ""

    def entries(self, first_lsn: int, last_lsn: int) -> dict[str, Any]:
        assert (first_lsn, last_lsn) == (0, 0)
        return {"first_lsn": self.first, "last_lsn": self.last}

    def logged(self, first_lsn: int, last_lsn: int) -> list[LoggedRow]:
        effect = pack_effect([Put("put", "t", b"k", self.value)])
        return [(f"t{lsn}", lsn, "applied", "", effect, packed(lsn)) for lsn in range(first_lsn, min(last_lsn, self.last) + 1)][:2]

    def write(self, operations: list[Operation], *, ack: str) -> Written:
        self.written.append(operations)
        if self.writes_between:
            self.writes_between -= 1
            self.last += 1
            reason = self.reason or "conflict: expected fingerprint"
            raise (Rejected if self.reason else Conflict)(reason, "r", self.last)
        self.last += 1
        return Written("r", self.last, ack)


class Earlier:
    def value(self, table: str, key: bytes) -> bytes | None:
        return b"before"

    def messages(self, queue: str) -> list[Message]:
        raise AssertionError(queue)

    def checks(self) -> Mapping[str, Operation]:
        raise AssertionError


class Copy:
    """A copy whose queue has so many messages that an answer cannot hold them all."""

    def __init__(self, messages: int, bytes_each: int) -> None:
        self.rows = [(f"m{number:04}", "text/plain", bytes(bytes_each)) for number in range(messages)]

    def read(self, kind: str, name: str, arguments: dict[str, object]) -> ReadAnswer:
        assert kind == "queue"
        after, limit = str(arguments.get("after", "")), cast("int", arguments["limit"])
        page = [row for row in self.rows if row[0] > after][:limit]
        if sum(len(row[2]) for row in page) > RESULT_LIMIT_BYTES:
            raise TooLarge("ask for fewer with limit")
        return ReadAnswer("application/msgpack", 1, iter([msgpack.packb(page)]))


@pytest.mark.parametrize(("messages", "bytes_each"), [(0, 0), (2_500, 10), (1_500, 100_000), (20, 8 * 1024 * 1024)])
def test_all_messages_of_an_earlier_queue_are_read_however_large_they_are(messages: int, bytes_each: int) -> None:
    copy = Copy(messages, bytes_each)
    assert [message.id for message in EarlierCopy(copy).messages("q")] == [row[0] for row in copy.rows]


def restore(fake: Fake, lsn: int = 3, fingerprint: int = 3) -> OnlineRestore:
    return OnlineRestore(cast("Client", fake), Target(lsn, "t3", 3, packed(fingerprint), 0))


def test_what_came_is_undone_by_one_transaction_that_expects_the_end_of_the_log() -> None:
    fake = Fake()
    online = restore(fake)
    assert online.check() == 6
    done = online.run(Earlier(), dry_run=False)
    assert (done["state"], done["lsn"], done["operations"]) == ("restored", 7, 1)
    assert fake.written == [[("expect-fingerprint", f"1:{6:032x}"), ("put", "t", b"k", b"before")]]


def test_what_somebody_wrote_meanwhile_is_looked_at_too() -> None:
    fake = Fake(writes_between=2)
    done = restore(fake).run(Earlier(), dry_run=False)
    assert [operations[0][1] for operations in fake.written] == [f"1:{lsn:032x}" for lsn in (6, 7, 8)]
    assert done["lsn"] == 9


def test_it_does_not_try_for_ever() -> None:
    fake = Fake(writes_between=10_000)
    with pytest.raises(NotReady, match="have the writers pause"):
        restore(fake).run(Earlier(), dry_run=False)
    assert len(fake.written) == ATTEMPTS


def test_another_rejection_is_told() -> None:
    fake = Fake(writes_between=1)
    fake.reason = "check stock does not hold"
    with pytest.raises(Rejected, match="check stock"):
        restore(fake).run(Earlier(), dry_run=False)
    assert len(fake.written) == 1


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_as_it_was_is_not_written(dry_run: bool) -> None:
    fake = Fake(value=b"before")
    done = restore(fake).run(Earlier(), dry_run=dry_run)
    assert (done["state"], done["operations"], fake.written) == ("unchanged", 0, [])


def test_a_dry_run_says_how_much_it_would_be() -> None:
    fake = Fake()
    done = restore(fake).run(Earlier(), dry_run=True)
    assert (done["state"], done["operations"], fake.written) == ("planned", 1, [])
    assert done["bytes"] > 0


def test_more_than_a_transaction_holds_is_refused() -> None:
    class Large(Earlier):
        def value(self, table: str, key: bytes) -> bytes | None:
            return bytes(9_000_000)

    fake = Fake()
    with pytest.raises(TooLarge, match=r"after LSN 3 cannot be undone in one transaction.*--all"):
        restore(fake).run(Large(), dry_run=True)
    assert not fake.written


@pytest.mark.parametrize(
    ("online", "text"),
    [
        (restore(Fake(last=2)), "is at LSN 2, before LSN 3"),
        (restore(Fake(first=5)), "begins with LSN 5"),
        (restore(Fake(), fingerprint=4), "different histories"),
    ],
)
def test_a_log_that_does_not_lead_on_from_the_backup_is_refused(online: OnlineRestore, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        online.check()


def test_a_log_that_begins_just_after_it_is_enough() -> None:
    assert restore(Fake(first=4)).check() == 6
