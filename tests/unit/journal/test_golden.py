"""Format version 3 is pinned: the bytes in golden/format-3.txt are on disks, and must be read for ever.

A line is a name and the row in hexadecimal. When this test fails because a row is written in another way, that is a new
format version with its own file, and the old one must still be readable: format-2.txt is what version 2 wrote, and
format-3-released.txt what version 3 wrote before epochs said anything of splits.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from zlib import crc32

import msgpack
import pytest

from brokerha.journal import rows
from brokerha.journal.current import Current, unpack
from brokerha.journal.recovery import State, read_decided
from brokerha.model.codec import decode_record, encode_record
from brokerha.model.epochs import Configuration, Epoch
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

FOLDER = Path(__file__).parent / "golden"
SEED = crc32(b"golden-journal")

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

EXAMPLES: tuple[tuple[int, Record], ...] = (
    (0, Started(7)),
    (0, ClockReserved(1_790_000_000_000_000)),
    (0, PeerJournal("m2", "0123456789abcdef")),
    (2, Accepted((("key-1", b"\x00body"), ("key-2", b"")))),
    (1, BodiesHeld((("m2", "key-3", b"\xff\x00"),))),
    (2, Appended("m2", 41, ((1_790_000_000_000_000, "key-3"), (1_790_000_000_000_001, "key-4")))),
    (2, Added(300, ((5, "key-1", "m1"), (6, "key-3", "m2")), {"m1": 17, "m2": 42}, 3)),
    (2, Outcomes(300, (("applied", "", b"\x91", packed(7)), ("rejected", "näh", b"", packed(7))), 12)),
    (0, WorkersChanged((("w1", True, True), ("w2", False, True)))),
    (0, Rebased(300, packed(8), 12, "chosen by hand")),
    (0, ViewStarted(21, "m1-b")),
    (0, TxPrepared("key-5", "1:6f72646572:00", b"\xc0body", ("m1-b", "m1-c"), 1_790_000_000_000_002)),
    (0, TxDecided("key-5", is_commit=False, reason="asked for", is_heuristic=True)),
    (0, TxForgotten("key-5")),
    (0, PinsChanged((("archive", 300, 1_790_000_000_000_003),))),
    (0, EpochPromised((4, "m2"))),
    (0, EpochInstalled(EPOCH)),
    (0, IdsTaken((("key-1", 299), ("key-2", 301)), ((299, "näh"),))),
    (0, StateTaken(301, (6, "key-3", "m2"), packed(7), 12)),
    (0, Rewound(299, 4, 6)),
    (0, ContentTaken(43)),
)
OLD = 10
"""So many of them were there in format 2."""

CURRENT = Current(
    incarnation=7,
    high_water=9,
    epoch=3,
    peer_journals={"m2": "x"},
    counts={"m1": 17, "m2": 43},
    used={"m1": 17, "m2": 42},
    trimmed={"m1": 2},
    lsn=301,
    first_lsn=5,
    last=(6, "key-3", "m2"),
    executed_lsn=301,
    fingerprint=packed(7),
    items=12,
    results_from=6,
    base=packed(6),
    workers=(("w1", True, True), ("w2", False, True)),
    starts=((6, 3), (7, 301)),
    views=((10, 1), (21, 11)),
    lacking_to=8,
)
PINNED = dataclasses.replace(CURRENT, pins=(("archive", 300, 1_790_000_000_000_003),))
IN_AN_EPOCH = dataclasses.replace(
    CURRENT, promised_epoch=(5, "m1"), installed=(4, "m2"), installed_by=17, begins={"m1": 17, "m2": 43}
)
OLD_CURRENT = dataclasses.replace(CURRENT, starts=(), views=(), lacking_to=0)

DROPPED = (("m2", "key-1", (9 << 20) + 4),)


def written() -> dict[str, bytes]:
    """All rows as this program writes them."""
    found = {
        f"log {type(record).__name__}": rows.seal(SEED, number, live, encode_record(record))
        for number, (live, record) in enumerate(EXAMPLES, 1)
    }
    found["added key"] = rows.added_key(300, 7)
    found["added row"] = rows.AddedRow((4 << 20, (5 << 20) + 1), {"m1": 17, "m2": 42}, DROPPED).pack()
    found["outcomes key"] = found["log key"] = rows.number_key(300)
    found["outcomes row"] = found["stream row"] = rows.counted_row(8, 2)
    found["stream key"] = rows.stream_key("m2", 41)
    ids = rows.id_rows(rows.id_partition(b"key-1"), {b"key-1": 300})
    found["ids key"], found["ids row"] = ids[0]
    found["dropped key"] = rows.body_key("m2", "key-1")
    found["waiting row"] = rows.waiting_row(rows.PARKED, "m1", "key-1")
    found["rejected row"] = rows.keyed_row(rows.number_key(301), "näh".encode())
    found["marks row"] = rows.keyed_row(rows.number_key(4), rows.number_key(1_790_000_000_000_000))
    found["prepared row"] = rows.keyed_row(rows.number_key(12), b"key-5")
    found["decided row"] = rows.keyed_row(rows.number_key(13), encode_record(EXAMPLES[12][1]))
    found["meta history"] = rows.checked(CURRENT.pack_history())
    found["meta state"] = State(9, 8, 250, CURRENT).pack()
    found["meta state with pins"] = State(9, 8, 250, PINNED).pack()
    found["meta state in an epoch"] = State(9, 8, 250, IN_AN_EPOCH).pack()
    found["added row of an epoch"] = rows.AddedRow((), EPOCH.starts, DROPPED).pack()
    return found


def golden(version: int | str = 3) -> dict[str, bytes]:
    lines = (FOLDER / f"format-{version}.txt").read_text(encoding="utf-8").splitlines()
    return {name: bytes.fromhex(data) for name, _, data in (line.rpartition(" ") for line in lines)}


def test_rows_are_written_as_format_3_says() -> None:
    assert written() == golden()


def test_rows_of_format_2_are_the_same_but_for_the_current_state() -> None:
    old, new = golden(2), golden()
    assert [name for name in old if old[name] != new[name]] == ["meta state"]
    assert set(new) - set(old) == {
        *(f"log {type(record).__name__}" for _, record in EXAMPLES[OLD:]),
        "prepared row",
        "decided row",
        "meta history",
        "meta state with pins",
        "meta state in an epoch",
        "added row of an epoch",
    }


def test_the_current_state_of_format_2_is_read() -> None:
    next_number, first_needed, first_waiting, current = msgpack.unpackb(rows.read_checked(golden(2)["meta state"]))
    assert (next_number, first_needed, first_waiting) == (9, 8, 250)
    assert unpack(current) == OLD_CURRENT


def test_the_current_state_in_an_epoch_is_read() -> None:
    *_, current = msgpack.unpackb(rows.read_checked(golden()["meta state in an epoch"]))
    assert unpack(current, CURRENT.pack_history()) == IN_AN_EPOCH
    assert rows.read_added_row(golden()["added row of an epoch"]) == ((), EPOCH.starts, DROPPED)


def test_there_is_an_example_of_each_kind_of_record() -> None:
    assert [type(record) for _, record in EXAMPLES] == list(RECORDS)


@pytest.mark.parametrize(("number", "example"), list(enumerate(EXAMPLES, 1)), ids=lambda v: type(v).__name__)
def test_records_of_format_3_are_read(number: int, example: tuple[int, Record]) -> None:
    live, record = example
    row = golden()[f"log {type(record).__name__}"]
    assert decode_record(rows.unseal(SEED, number, row)) == record
    assert rows.live_items(row) == live


def test_records_that_were_written_before_epochs_said_anything_of_splits_are_read() -> None:
    released, now = golden("3-released"), golden()
    assert [name for name in released if released[name] != now[name]] == ["log EpochInstalled"]
    number = next(n for n, (_, record) in enumerate(EXAMPLES, 1) if isinstance(record, EpochInstalled))
    assert decode_record(rows.unseal(SEED, number, released["log EpochInstalled"])) == EpochInstalled(EPOCH)


def test_a_row_is_no_other_record_of_no_other_journal() -> None:
    row = golden()["log Started"]
    with pytest.raises(rows.BadRow, match="checksum"):
        rows.unseal(SEED, 2, row)
    with pytest.raises(rows.BadRow, match="checksum"):
        rows.unseal(SEED + 1, 1, row)
    with pytest.raises(rows.BadRow, match="only 3 bytes"):
        rows.unseal(SEED, 1, row[:3])


def test_index_rows_of_format_3_are_read() -> None:
    found = golden()
    assert rows.read_added_key(found["added key"]) == (300, 7)
    assert rows.read_added_row(found["added row"]) == ((4 << 20, (5 << 20) + 1), {"m1": 17, "m2": 42}, DROPPED)
    assert rows.read_counted_row(found["stream row"]) == (8, 2)
    assert rows.read_stream_key(found["stream key"]) == ("m2", 41)
    assert rows.read_id_row(b"key-1", found["ids row"]) == 300
    assert rows.read_waiting_row(found["waiting row"]) == (rows.PARKED, "m1", "key-1")
    assert rows.read_keyed_row(rows.number_key(301), found["rejected row"]).decode() == "näh"
    assert read_decided(rows.read_keyed_row(rows.number_key(13), found["decided row"])) == EXAMPLES[12][1]
    assert unpack(CURRENT.pack(), rows.read_checked(found["meta history"])) == CURRENT


def test_keys_sort_as_their_numbers_do() -> None:
    numbers = [0, 1, 255, 256, 2**32, 2**63]
    for make in (rows.number_key, lambda n: rows.added_key(n, 3), lambda n: rows.stream_key("m1", n)):
        keys = [make(number) for number in numbers]
        assert keys == sorted(keys)
