"""Entries over a real RabbitMQ: from the stream of a master in parts, and what its journal says of the same.

Given a master whose stream holds many messages, large transactions in several of them, and the log of an earlier journal, when any range
is read, then it comes without the rest of the stream, whole and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import NotFound
from brokerha.nodes.master import journal_lines
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.stores.backup.lines import LinesMissing
from brokerha.transports.log_stream.reader import LogReader
from tests.support.configs import config_of
from tests.support.waiting import until

WAIT_S = 30.0
WRITES = 60


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    # Many small messages, and transactions that need several.
    monkeypatch.setattr(journal_lines, "BATCH_LSNS", 4)
    monkeypatch.setattr(journal_lines, "PART_BYTES", 2_000)
    with EmbeddedCluster(config_of("follow", vhost_url, tmp_path / "first", {"m1": "w1"})) as earlier:
        write(earlier, 5)
    with EmbeddedCluster(config_of("follow", vhost_url, tmp_path / "second", {"m1": "w1"})) as running:
        write(running, WRITES)
        yield running


def write(cluster: EmbeddedCluster, count: int) -> None:
    """Writes, each tenth one larger than a message; until all of them are in the stream."""
    db = cluster.client("m1")
    for number in range(count):
        db.put("t", b"k%d" % number, b"v" * (9_000 if number % 10 == 9 else 20), timeout=WAIT_S)
    followers = cluster.masters["m1"].followers
    assert followers is not None
    until(lambda: followers.published_lsn() >= count, followers.published_lsn)


def held(cluster: EmbeddedCluster) -> list[LogEntry]:
    journal = cluster.masters["m1"].journal
    results = journal.results(1, 1000)
    ordered = journal.ordered(1, len(results))
    return [
        LogEntry(lsn, txid, origin, stamp, 1, *result)
        for lsn, ((stamp, txid, origin), result) in enumerate(zip(ordered, results, strict=True), 1)
    ]


def test_any_range_of_a_stream_is_what_the_journal_holds_and_is_found_without_reading_all_before_it(
    cluster: EmbeddedCluster, vhost_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = held(cluster)
    with open_source(SourceSpec(stream=vhost_url, master="m1")) as source:
        assert (source.cluster, source.first_lsn(), source.last_lsn()) == ("follow", 1, WRITES)
        for first_lsn, last_lsn in ((1, WRITES), (1, 1), (10, 10), (11, 30), (37, 52), (WRITES, WRITES)):
            assert list(source.read(first_lsn, last_lsn)) == entries[first_lsn - 1 : last_lsn]
        with pytest.raises(LinesMissing, match=f"ends with LSN {WRITES}, before {WRITES + 1}"):
            list(source.read(WRITES, WRITES + 5))
        seen: list[int] = []
        bodies = LogReader._bodies

        def counted(reader: LogReader, start: int | str) -> Iterator[tuple[int, bytes]]:
            for end, body in bodies(reader, start):
                seen.append(len(body))
                yield end, body

        monkeypatch.setattr(LogReader, "_bodies", counted)
        list(source.read(WRITES - 1, WRITES))
        assert len(seen) <= 2


def test_a_master_gives_its_entries_over_amqp_too(cluster: EmbeddedCluster, vhost_url: str) -> None:
    with open_source(SourceSpec(url=vhost_url)) as source:
        assert (source.cluster, source.first_lsn(), source.last_lsn()) == ("follow", 1, WRITES)
        assert list(source.read(1, WRITES)) == held(cluster)


def test_a_stream_that_is_not_there_is_an_error_that_asks_for_the_master(vhost_url: str) -> None:
    with pytest.raises(NotFound, match="which master"):
        open_source(SourceSpec(stream=vhost_url, master="m9"))
