"""A log that goes back after a split, from the journal over the stream to who reads it: nobody gets lines of two lineages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.model.log_lineages import rewinds_of
from brokerha.nodes.master.journal_lines import ChangeLog, entry_rows, logged_lines
from brokerha.ports.journal import Journal
from brokerha.transports.log_stream import reader as log_reader
from brokerha.transports.log_stream.messages import groups_of, next_lsn, void_after, went_back
from brokerha.transports.log_stream.reader import LogReader
from tests.support.logs import memory_log
from tests.unit.log.turns import Author, filled

ALL = 1 << 40
Published = list[tuple[Mapping[str, Any], bytes]]


@pytest.fixture(params=["memory", "lmdb"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    held: Journal = memory_log("m1", "j") if request.param == "memory" else Log(FileDisk(tmp_path / "m1"), "c", "m1")
    yield held
    held.close()


def gone_back(journal: Journal, author: Author, lsn: int, lineage: int, *names: str) -> None:
    """Let the log go back and go on with other transactions, of the epoch of that lineage."""
    journal.append([author.go_back(lsn, lineage=lineage)])
    if names:
        parked = journal.state().parked
        journal.append([author.accept(*names), author.stamp(*parked, *names), author.add(99, epoch=lineage), author.execute(99)])


class Stream:
    """What a publisher has put into the stream of a master; each `publish` is one connection."""

    def __init__(self, journal: Journal) -> None:
        self.messages: Published = []
        self.told: list[str] = []
        self._log = ChangeLog(journal, with_changes=False)

    def publish(self, last_lsn: int = ALL) -> None:
        log, last = self._log, self.messages[-1][0] if self.messages else None
        following = next_lsn(last, log.journal, log.first_lsn(), log.rewinds())
        place = void_after(last, log.journal, log.rewinds())
        groups = went_back(place, "m1", "c", log.journal, log.rewinds()) if place is not None else []
        while (batch := log.batch(following, min(following + 1, last_lsn))) is not None:
            groups += groups_of(batch, "m1", "c", log.journal)
            following = batch.last_lsn + 1
        for (post,) in groups:
            headers = post.properties["application_headers"]
            if post.is_log:
                self.messages.append(({**headers, "x-stream-offset": len(self.messages)}, post.body))
            else:
                self.told.append(post.key)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Published], LogReader]:
    """Opens a reader of messages, as the broker would give them."""

    def read(messages: Published) -> LogReader:
        def given(
            _reader: LogReader, offset: int | str, _quiet_s: float, prefetch: int = 10
        ) -> Generator[tuple[Mapping[str, Any], bytes], None, None]:
            place = len(messages) - 1 if offset == "last" else int(offset)
            yield from (each for each in messages if each[0]["x-stream-offset"] >= place)

        monkeypatch.setattr(LogReader, "_messages", given)
        monkeypatch.setattr(log_reader, "_connected", lambda *_given: SimpleNamespace(release=lambda: None))
        return LogReader("amqp://nowhere", "m1")

    return read


def test_whoever_reads_the_stream_gets_the_lines_of_now_from_any_of_them_on(
    journal: Journal, opened: Callable[[Published], LogReader]
):
    author, stream = filled(journal, 8), Stream(journal)
    stream.publish()
    gone_back(journal, author, 5, 4, "a1", "a2")
    stream.publish()
    gone_back(journal, author, 3, 7, "b1")
    stream.publish()
    gone_back(journal, author, author.lsn, 9, "c1")
    stream.publish()
    reader, last = opened(stream.messages), journal.state().lsn
    assert stream.told == ["log.m1.went-back"] * 2
    assert (reader.first_lsn, reader.last_lsn, reader.rewinds) == (1, last, rewinds_of(journal.splits()))
    for first in range(1, last + 1):
        wanted = [(lsn, t, o, at, *rest, epoch) for lsn, t, o, at, epoch, *rest in entry_rows(journal, first, last)]
        assert list(reader.rows(first, last)) == wanted
    assert [row[8] for row in reader.rows(1, last)] == [1, 1, 1, *[7] * (last - 4), 9]


def test_a_stream_says_that_its_end_is_void_before_anything_new_comes(journal: Journal, opened: Callable[[Published], LogReader]):
    author, stream = filled(journal, 8), Stream(journal)
    stream.publish()
    gone_back(journal, author, 5, 4)
    stream.publish()
    reader = opened(stream.messages)
    assert (reader.last_lsn, [lsn for lsn, _ in reader.lines(1, 8)]) == (5, [1, 2, 3, 4, 5])


def test_a_stream_that_begins_with_what_is_void_begins_after_it(journal: Journal, opened: Callable[[Published], LogReader]):
    author, stream = filled(journal, 8), Stream(journal)
    stream.publish()
    gone_back(journal, author, 5, 4, "a1")
    stream.publish()
    # Lines 7 and 8 of lineage 0 come first, then the message of the going back.
    reader = opened([({**headers, "x-stream-offset": n}, body) for n, (headers, body) in enumerate(stream.messages[3:])])
    assert reader.first_lsn == 6
    assert [lsn for lsn, _ in reader.lines(6, 9)] == [6, 7, 8, 9]


@pytest.fixture
def meanwhile(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has something done between a question for results and the next question, once."""
    results = journal.results

    def arrange(act: Callable[[], None]) -> None:
        def acting(first_lsn: int, limit: int) -> Any:
            monkeypatch.setattr(journal, "results", results)
            found = results(first_lsn, limit)
            act()
            return found

        monkeypatch.setattr(journal, "results", acting)

    return arrange


def test_a_batch_is_of_one_lineage_when_the_log_goes_back_meanwhile(journal: Journal, meanwhile: Any):
    author = filled(journal, 8)
    meanwhile(lambda: gone_back(journal, author, 2, 4, "a1"))
    batch = ChangeLog(journal, with_changes=False).batch(1, ALL)
    assert batch is not None
    assert (batch.last_lsn, batch.rewinds) == (9, ((4, 2),))
    txids = [row[1] for row in msgpack.unpackb(b"".join(batch.parts))]
    assert txids == [txid for _, txid, _ in journal.ordered(1, 99)]


def test_a_page_is_of_one_lineage_when_the_log_goes_back_meanwhile(journal: Journal, meanwhile: Any):
    author = filled(journal, 8)
    meanwhile(lambda: gone_back(journal, author, 2, 4, "a1"))
    assert [line[0] for line in logged_lines(journal, 1, ALL)] == [txid for _, txid, _ in journal.ordered(1, 99)]
