"""Format version 4 is pinned: the example in FORMAT.md is what is written, and is read; so is each kind of record.

When a test here fails because something is written in another way, that is a new format version.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from brokerha.log import log as log_module
from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.log.frames import seed_of
from brokerha.log.log import Log
from brokerha.log.segments import Segments
from brokerha.model.epochs import Configuration, Epoch
from brokerha.model.errors import JournalError, JournalForeign, StoreError
from brokerha.model.fingerprints import packed
from brokerha.model.records import (
    RECORDS,
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    ClockReserved,
    ContentTaken,
    EpochInstalled,
    EpochPromised,
    IdsTaken,
    Outcomes,
    PeerJournal,
    PinsChanged,
    Rebased,
    Record,
    Rewound,
    Started,
    StateTaken,
    TxDecided,
    TxForgotten,
    TxPrepared,
    ViewStarted,
    WorkersChanged,
)
from brokerha.model.wire.codec import decode_record, encode_record
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.support.logs import disk_of, memory_log

NAME = "0123456789abcdef"
EPOCH = Epoch(
    number=4,
    proposer="m2",
    members=("m1", "m2"),
    base_lsn=301,
    base_txid="key-3",
    recovered=((1_790_000_000_000_001, "key-4", "m2"),),
    starts={"m1": 17, "m2": 43},
    above=1_790_000_000_000_004,
    configuration=Configuration(
        ("m1", "m2", "m4"), ("m1", "m2"), (("m3", "abc"),), {"m1": "0123456789abcdef", "m2": "x", "m4": "y"}
    ),
)
EXAMPLES: tuple[Record, ...] = (
    Started(7),
    ClockReserved(1_790_000_000_000_000),
    PeerJournal("m2", "0123456789abcdef"),
    Accepted((("key-1", b"\x00body"), ("key-2", b""))),
    BodiesHeld((("m2", "key-3", b"\xff\x00"),)),
    Appended("m2", 41, ((1_790_000_000_000_000, "key-3"), (1_790_000_000_000_001, "key-4"))),
    Added(300, ((5, "key-1", "m1"), (6, "key-3", "m2")), {"m1": 17, "m2": 42}, 3),
    Outcomes(300, (("applied", "", b"\x91", packed(7)), ("rejected", "näh", b"", packed(7))), 12),
    WorkersChanged((("w1", True, True), ("w2", False, True))),
    Rebased(300, packed(8), 12, "chosen by hand"),
    ViewStarted(21, "m1-b"),
    TxPrepared("key-5", "1:6f72646572:00", b"\xc0body", ("m1-b", "m1-c"), 1_790_000_000_000_002),
    TxDecided("key-5", is_commit=False, reason="asked for", is_heuristic=True),
    TxForgotten("key-5"),
    PinsChanged((("archive", 300, 1_790_000_000_000_003),)),
    EpochPromised((4, "m2")),
    EpochInstalled(EPOCH),
    IdsTaken((("key-1", 299), ("key-2", 301)), ((299, "näh"),)),
    StateTaken(301, (6, "key-3", "m2"), packed(7), 12),
    Rewound(299, 4, 6),
    ContentTaken(43),
)
GOLDEN = Path(__file__).parent / "golden" / "records-4.txt"


def example() -> bytes:
    """The bytes in FORMAT.md."""
    text = (Path(log_module.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if block.startswith("offset 0"))
    return bytes.fromhex(re.sub(r"offset \d+", "", block))


def test_the_example_is_what_is_written() -> None:
    log = memory_log("m1", NAME)
    log.append([Started(7)])
    assert bytes(disk_of(log).files["1/00000000.log"]) == example()


def test_the_example_is_read() -> None:
    disk = MemoryDisk()
    disk.files["1/00000000.log"] = bytearray(example())
    Log(disk.copy(), "orders", "m1", name=NAME).close()
    beside = memory_log("m1", NAME)
    beside.disk.write("1/00000000.log", 0, example())
    assert Log(disk_of(beside).copy(), "orders", "m1").state().incarnation == 7


def test_there_is_an_example_of_each_kind_of_record() -> None:
    assert [type(record) for record in EXAMPLES] == list(RECORDS)


def test_records_are_written_and_read_as_they_always_were() -> None:
    lines = [line.rpartition(" ") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    golden = {name: bytes.fromhex(data) for name, _, data in lines}
    assert {type(record).__name__: encode_record(record) for record in EXAMPLES} == golden
    assert [decode_record(data) for data in golden.values()] == list(EXAMPLES)


def test_a_frame_is_none_of_another_journal_or_segment() -> None:
    segments = Segments(MemoryDisk(), "1", NAME)
    segments.begin(1)
    assert len({seed_of(NAME, 0), seed_of(NAME, 1), seed_of("other", 0), segments._seed}) == 3


def test_a_journal_of_0_1_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"LMDB")
    with pytest.raises(JournalError, match=r"holds a journal of brokerha 0\.1 \(data\.mdb\).*write a backup with 0\.1 and restore"):
        Log(FileDisk(tmp_path), "orders", "m1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.mdb", "owner"]


def test_a_log_of_a_later_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = memory_log("m1", NAME)
    monkeypatch.setattr(log_module, "FORMAT", 3)
    with pytest.raises(JournalError, match="has format 5, this version reads 3: start a later version"):
        Log(disk_of(log).copy(), "orders", "m1")


@pytest.mark.parametrize(("cluster", "node", "why"), [("other", "m1", "cluster orders, not to other"), ("orders", "m2", "node m1")])
def test_the_log_of_another_node_is_refused(cluster: str, node: str, why: str) -> None:
    log = memory_log("m1", NAME)
    with pytest.raises(JournalForeign, match=why):
        Log(disk_of(log).copy(), cluster, node)


def test_the_directory_of_a_worker_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    with closing(WorkerCopy(tmp_path, cluster="orders", node="w1")):
        pass
    before = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} | {Path("owner")}
    with pytest.raises(JournalForeign, match="holds the copy of a worker: give this node a directory of its own"):
        Log(FileDisk(tmp_path), "orders", "m1")
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == before


def test_a_worker_is_refused_the_directory_of_a_journal(tmp_path: Path) -> None:
    Log(FileDisk(tmp_path), "orders", "m1").close()
    with pytest.raises(StoreError, match="holds the journal of a master or a backup"):
        WorkerCopy(tmp_path, cluster="orders", node="w1")
    assert not (tmp_path / "copy.1").exists()
    Log(FileDisk(tmp_path), "orders", "m1").close()
