"""All sources give the same entries of a range, several at once, and say what is not there (any more)."""

from __future__ import annotations

import itertools
import pickle
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log as Journal
from brokerha.log.log import open_log
from brokerha.model.errors import ConfigurationError, JournalError, JournalInUse, Unreachable
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.stores.backup.lines import LinesMissing
from tests.unit.client.serving import wait_until
from tests.unit.pipeline.made_archives import Log
from tests.unit.pipeline.random_log import random_entries

WAIT_S = 30.0
WRITES = 60


@dataclass
class Place:
    """A cluster that has run and is stopped, and what it said over HTTP."""

    entries: list[LogEntry]
    over_http: list[LogEntry]
    parts: list[LogEntry]
    missing: str
    journal: Path


def config(folder: Path) -> ClusterConfig:
    return ClusterConfig(
        name="orders",
        broker=f"embedded://sources-{folder.name}",
        data=folder,
        masters=(MasterEntry(id="m1"),),
        workers=(WorkerEntry(id="w1", master="m1"),),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(config(folder)) as cluster:
        db = cluster.client("m1")
        for number in range(WRITES):
            db.put("t", b"k%d" % number, b"v" * 50, timeout=WAIT_S)
        db.update("main", "INSERT DATA { <urn:a> <urn:b> 1, 2 }", timeout=WAIT_S)
        # The client may hear of the last write a turn before the log shows it.
        wait_until(lambda: db.entries(0, 0)["last_lsn"] > WRITES)
        master = cluster.masters["m1"]
        server = HttpServer(create_app(master), "127.0.0.1", 0)
        server.start()
        try:
            with open_source(SourceSpec(url=server.url)) as source:
                assert (source.cluster, source.first_lsn(), source.last_lsn()) == ("orders", 1, WRITES + 1)
                over_http = list(source.read(1, WRITES + 1))
                parts = list(source.read(10, 20))
                with pytest.raises(LinesMissing) as missing:
                    list(source.read(60, 70))
        finally:
            server.stop(5.0)
        journal = master.journal
        results = journal.results(1, 1000)
        ordered = journal.ordered(1, len(results))
        entries = [
            LogEntry(lsn, txid, origin, stamp, 1, *result)
            for lsn, ((stamp, txid, origin), result) in enumerate(zip(ordered, results, strict=True), 1)
        ]
    return Place(entries, over_http, parts, str(missing.value), config(folder).data_directory("m1"))


def test_a_node_gives_what_its_journal_holds_with_origins_and_epochs(place):
    assert len(place.entries) == WRITES + 1
    assert place.over_http == place.entries
    assert place.parts == place.entries[9:20]
    assert place.missing.endswith(f"ends with LSN {WRITES + 1}, before {WRITES + 2}")


def test_the_journal_of_a_stopped_master_gives_the_same_to_several_readers_at_once(place):
    spec = SourceSpec(journal=str(place.journal))
    with open_source(spec) as source:
        assert (source.cluster, source.first_lsn(), source.last_lsn()) == ("orders", 1, WRITES + 1)
        assert list(source.read(1, WRITES + 1)) == place.entries
        assert list(source.read(30, 35)) == place.entries[29:35]
        other = (
            "from brokerha.pipeline.sources import *; import sys\n"
            "with open_source(SourceSpec(journal=sys.argv[1])) as s: print(len(list(s.read(1, s.last_lsn()))))"
        )
        told = subprocess.run([sys.executable, "-c", other, str(place.journal)], capture_output=True, text=True, check=True)
        assert int(told.stdout) == WRITES + 1


def test_who_reads_a_journal_changes_nothing_in_it(place):
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in place.journal.glob("*/*")}

    before = files()
    with open_log(place.journal) as journal:
        journal.results(1, 10)
    assert files() == before != {}


def test_a_journal_that_a_node_has_open_is_not_read(tmp_path):
    journal = Journal(FileDisk(tmp_path), "orders", "m1")
    with pytest.raises(JournalInUse, match="stop it first"):
        open_source(SourceSpec(journal=str(tmp_path)))
    journal.close()


def test_a_node_does_not_start_on_a_journal_that_is_being_read(place):
    with open_log(place.journal), pytest.raises(JournalInUse, match=r"which reads it\) has the journal"):
        Journal(FileDisk(place.journal), "orders", "m1")


def test_a_directory_without_a_journal_is_an_error_and_stays_empty(tmp_path):
    with pytest.raises(JournalError, match="there is no journal"):
        open_source(SourceSpec(journal=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_journal_of_an_earlier_version_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "data.mdb").touch()
    with pytest.raises(JournalError, match=r"write a backup with 0\.1 and restore it with this version"):
        open_source(SourceSpec(journal=str(tmp_path)))


def test_a_backup_gives_ranges_across_its_segments_without_origins(tmp_path):
    entries = random_entries(3, 90)
    log = Log(tmp_path / "log", entries[:40])
    log.add(entries[40:])
    with open_source(log.spec) as source:
        assert (source.cluster, source.first_lsn(), source.last_lsn()) == ("orders", 1, 90)
        assert list(source.read(1, 90)) == log.entries
        assert list(source.read(39, 42)) == log.entries[38:42]


def test_a_part_of_a_segment_of_many_blocks_is_read_without_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr("brokerha.stores.backup.lines.BLOCK_LINES", 10)
    log = Log(tmp_path / "log", random_entries(4, 100))
    segment = tmp_path / "log" / log.manifest.segments[0].path
    data = bytearray(segment.read_bytes())
    data[60] ^= 1
    segment.write_bytes(data)
    with open_source(log.spec) as source:
        for first_lsn, last_lsn in ((11, 11), (20, 21), (55, 99), (100, 100)):
            assert list(source.read(first_lsn, last_lsn)) == log.entries[first_lsn - 1 : last_lsn]


def test_a_range_before_the_first_line_or_behind_the_last_is_an_error_that_names_it(tmp_path):
    log = Log(tmp_path / "log", random_entries(5, 50)[20:])
    with open_source(log.spec) as source:
        with pytest.raises(LinesMissing, match=r"does not have LSN 7 \(any more\): the first one is 21"):
            list(source.read(7, 30))
        with pytest.raises(LinesMissing, match="ends with LSN 50, before 51"):
            list(source.read(49, 60))


def test_nobody_at_an_address_is_an_error_in_time():
    began_s = time.monotonic()
    with pytest.raises(Unreachable):
        open_source(SourceSpec(url="http://127.0.0.1:9", timeout_s=0.5))
    assert time.monotonic() - began_s < WAIT_S


def test_a_node_that_is_frozen_is_as_far_away_as_none():
    # Given somebody who takes connections and says nothing
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port} did not answer"):
            open_source(SourceSpec(url=f"http://127.0.0.1:{port}", timeout_s=0.3))


SPECS = [
    SourceSpec(url="http://a:1,http://b:2"),
    SourceSpec(stream="amqp://h", master="m1", timeout_s=2.5),
    SourceSpec(journal="/d"),
    SourceSpec(backup="/d", timeout_s=1),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_description_travels_as_options_in_any_case_and_as_a_pickle(spec):
    options = spec.options()
    assert SourceSpec.from_options({name.upper(): value for name, value in options.items()}) == spec
    assert SourceSpec.from_options({**options, "path": "elsewhere"}) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "which log"),
        ({"url": "http://a", "backup": "/d"}, "which log"),
        ({"stream": "amqp://h"}, "a stream is that of one master"),
        ({"url": "http://a", "master": "m1"}, "a stream is that of one master"),
        ({"url": "http://a", "timeout": "soon"}, "timeout is a number"),
        ({"url": "http://a", "timeout": "0"}, "timeout is a number"),
    ],
)
def test_options_that_do_not_say_which_log_are_refused(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        SourceSpec.from_options(options)


class Masters:
    """Two masters behind one address, of which the one that answers next is behind the other."""

    def __init__(self, entries: list[LogEntry]) -> None:
        self.entries = entries
        self.reach = itertools.cycle([len(entries), len(entries) // 2])

    def entries_of(self, first_lsn: int, last_lsn: int) -> dict[str, Any]:
        last = next(self.reach)
        rows = self.entries[max(first_lsn, 1) - 1 : min(last_lsn, last)]
        return {"cluster": "orders", "first_lsn": 1, "last_lsn": last, "entries": rows}


def test_what_one_master_has_is_waited_for_when_another_one_answers(monkeypatch):
    entries = random_entries(6, 40)
    masters = Masters(entries)
    monkeypatch.setattr("brokerha.client.Client.entries", lambda _, first, last: masters.entries_of(first, last))
    with open_source(SourceSpec(url="http://a:1,http://b:2")) as source:
        assert list(source.read(1, 40)) == entries
