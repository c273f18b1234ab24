"""The codec: every message and record comes back equal; nothing that no node would send gets through."""

from __future__ import annotations

import dataclasses
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.epochs import Change, Configuration, Epoch
from brokerha.model.errors import ProtocolError
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
from brokerha.model.wire import codec
from brokerha.model.wire.codec import WIRE_VERSION, decode_envelope, decode_envelopes, decode_record, encode_envelope, encode_record
from brokerha.model.wire.epoch_messages import (
    EpochInstall,
    EpochPrepare,
    EpochRefused,
    EpochReport,
    Join,
    Leave,
    Notice,
    Row,
    State,
    StateWanted,
    Tail,
    TailWanted,
)
from brokerha.model.wire.messages import (
    MESSAGES,
    Apply,
    Bodies,
    Chunk,
    ChunksWanted,
    ClaimsWanted,
    Coin,
    Envelope,
    Execute,
    Executed,
    Fetch,
    Idle,
    Keep,
    LoadFrom,
    Message,
    Post,
    Progress,
    RangeMissing,
    Read,
    ReadResult,
    Request,
    Restore,
    SettingsReport,
    SettingsRequest,
    SnapshotDone,
    SnapshotOffered,
    SnapshotWanted,
    StatusReport,
    StatusRequest,
    Task,
    TaskReport,
)
from brokerha.model.wire.process_messages import (
    Candidate,
    Confirmed,
    NodeAnswer,
    NodeOrder,
    Promote,
    Records,
    RecordsMissing,
    RecordsWanted,
    Replicate,
    TxAnswer,
    TxEvents,
    TxJoin,
    Vote,
)

FINGERPRINT = bytes((1,)) + bytes(16)
ROW = Row("m1", "journal", 3, 9, (1, ""), (2, "m2"), 10**15, {"m1": 4, "m2": 0}, 0, 4, ("m2",), 4, "1:ab", {"m3": "j"}, "smart")
CONFIGURATION = Configuration(("m1", "m2"), ("m1", "m2", "m3"), (("m3", "gone"),), {"m1": "journal"})
PATH = (((1, ""), 7),)
EPOCH = Epoch(
    2, "m2", ("m1", "m2"), 7, "t-1", ((10, "t-2", "m3"),), {"m1": 4}, 10**15, CONFIGURATION, PATH, (((1, ""), 7, "m1"),), "smart"
)
EXAMPLES: tuple[Message, ...] = (
    Post(ROW, (ROW,), (("m1", 2, ((10, "t-1"), (11, "t-2"))),)),
    Bodies((("m1", "t-1", b"\x00\xff"),)),
    Fetch((("m1", "t-1"),)),
    Execute(7, (("t-1", 10, b"body"),)),
    Executed(7, (("applied", "", b"e", FINGERPRINT), ("rejected", "why", b"", FINGERPRINT)), 8, "1:ab", 3),
    Apply(7, (("t-1", 10, "applied", "", b"e", FINGERPRINT),), 2),
    Progress("journal", 8, "1:ab", 3, "on"),
    Read(
        "r-1",
        "query",
        "main",
        {"query": "ASK {}", "limit": 3, "flag": True, "none": None, "many": ("a", "b"), "raw": b"k", "reads": (b"1", b"2")},
        4,
        1000,
    ),
    ReadResult("r-1", 0, False, "", "text/plain", b"x", 8),
    StatusRequest("s-1"),
    StatusReport("s-1", ({"id": "m1", "lag_s": 0.5, "lag": 0, "seen": None, "up": True, "members": ("m1", "m2")},)),
    SettingsRequest(),
    ClaimsWanted("jobs"),
    SettingsReport(7, (("idle-round-ms", b"{}"),)),
    Coin(2, ("w1", "w2")),
    Idle(2, "by command"),
    LoadFrom(2, ("w1",), "another content at LSN 7"),
    Keep(2, 1_700_000_000_000_000, is_wanted=True),
    Restore(2, 1_700_000_000_000_000, 7, 40, "it is at LSN 44, and what it followed is void behind 40"),
    Request(3, 7),
    RangeMissing(3, 7, 5),
    SnapshotWanted("l-1"),
    SnapshotOffered("l-1", "snapshot-8", 8, "1:ab", 3, 1 << 20, (("rdf/CURRENT", 16, bytes(32)),)),
    ChunksWanted("snapshot-8", (0, 5)),
    Chunk("snapshot-8", 5, b"data"),
    SnapshotDone("snapshot-8"),
    Task("k-1", "backup", {"path": "b1", "full": True, "rate": 5, "base": None}),
    TaskReport("k-1", "running", 5, 10, "", {}),
    Replicate(11, (1, 6), ((7, b"record"),), 7, "journal", 3, True),
    Confirmed(11, "journal", (11, 7), "basic"),
    Candidate(21, "journal", (11, 7)),
    Vote(21, True, 21, (11, 7)),
    RecordsWanted(11, 3, 7),
    Records((1, 2), ((3, b"record"),)),
    RecordsMissing(3, 7, 5),
    TxJoin("t-1", 11, "brokerha.tx.m1.t-1.m1b"),
    TxEvents("t-1", 11, 0, (("begin", b""), ("operation", b"packed"))),
    TxAnswer("t-1", 11, "prepared", 3),
    Promote(True),
    NodeOrder("m1.7", "pause", True),
    NodeAnswer("m1.7", True, "paused", "by an operator", "", ""),
    EpochPrepare((2, "m2"), Change("add", "m3", "journal")),
    Notice((2, "m2"), "journal"),
    EpochReport(
        (2, "m2"),
        ROW,
        "t-1",
        ((0, 10, "t-2", "m3"),),
        (("m1", 2, ((10, "t-3"), (11, "t-4"))),),
        CONFIGURATION,
        ("t-9",),
        2,
        ("m1",),
        PATH,
        "smart",
    ),
    EpochRefused((2, "m2"), (3, "m1")),
    EpochInstall(EPOCH),
    TailWanted(5, 7),
    Tail(5, ((10, "t-2", "m3"),), 3),
    Join(3, 9, ROW),
    Leave(),
    StateWanted(7, b"\x01\xff"),
    State(7, b"", (10, "t-2", "m3"), FINGERPRINT, 12, (("t-1", 6),), ((6, "no place"),), b"\x01\xff"),
)
RECORD_EXAMPLES: tuple[Record, ...] = (
    Started(3),
    ClockReserved(10**15),
    PeerJournal("m2", "journal"),
    Accepted((("t-1", b"body"),)),
    BodiesHeld((("m2", "t-2", b"body"),)),
    Appended("m2", 5, ((10, "t-2"),)),
    Added(1, ((10, "t-2", "m2"),), {"m2": 6}),
    Outcomes(1, (("applied", "", b"", FINGERPRINT),), 2),
    WorkersChanged((("w1", True, False), ("w2", False, True))),
    Rebased(1, FINGERPRINT, 2, "chosen by hand"),
    ViewStarted(21, "m1b"),
    TxPrepared("t-1", "1:6f72646572:", b"body", ("m1b",), 10**15),
    TxDecided("t-1", False, "rolled back by its client"),
    TxForgotten("t-1"),
    PinsChanged((("archive", 7, 10**15),)),
    EpochPromised((2, "m2")),
    EpochInstalled(EPOCH),
    IdsTaken((("t-1", 6),), ((6, "no place"),)),
    StateTaken(7, (10, "t-2", "m3"), FINGERPRINT, 12),
    Rewound(40, 3, 5, keeps_content=True),
    ContentTaken(40),
)


def test_there_is_an_example_of_every_class() -> None:
    assert {type(example) for example in EXAMPLES} == set(MESSAGES)
    assert {type(example) for example in RECORD_EXAMPLES} == set(RECORDS)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_messages_come_back_equal(message: Message) -> None:
    assert decode_envelope(encode_envelope("orders", "m1", 3, message)) == Envelope("orders", "m1", 3, message)


def test_a_process_that_speaks_for_a_master_is_named() -> None:
    message = Fetch(())
    data = encode_envelope("orders", "m1", 3, message, "m1b")
    assert decode_envelope(data) == Envelope("orders", "m1", 3, message, "m1b")


@pytest.mark.parametrize("record", RECORD_EXAMPLES, ids=lambda r: type(r).__name__)
def test_records_come_back_equal(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def parts(message: Message) -> list[object]:
    values: list[object] = msgpack.unpackb(encode_envelope("orders", "m1", 3, message))
    return values


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_every_field_refuses_every_other_type(message: Message) -> None:
    values = parts(message)
    for place in range(6, len(values)):
        allowed = type(values[place])
        for wrong in (None, 1, 1.5, "x", b"x", True, [1], {"a": 1}, [[1]], [["x", 1, 2, 3]], {1: 2}):
            if type(wrong) is allowed and type(wrong) is not list:
                continue
            if type(message) is ChunksWanted and wrong == [1]:
                continue  # The only list of plain numbers.
            changed = [*values[:place], wrong, *values[place + 1 :]]
            field = dataclasses.fields(message)[place - 6].name
            try:
                decode_envelope(msgpack.packb(changed))
            except ProtocolError:
                continue
            raise AssertionError(f"{field} took {wrong!r}")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (msgpack.packb("text"), "not a list"),
        (msgpack.packb([]), "version"),
        (msgpack.packb([99, "c", "m1", 1, 0]), "version"),
        (msgpack.packb([2, "c", "m1", 1, "", 0]), "version"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", "one", "", 0]), "envelope"),
        (msgpack.packb([WIRE_VERSION, "c", "not a node", 1, "", 0]), "node id"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, "not a node", 0]), "node id"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, None, 0]), "node id"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, "", 99]), "unknown kind"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, "", "Post"]), "unknown kind"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, "", 0]), "fields"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\x91" * 5000, "not msgpack"),
        (msgpack.packb([WIRE_VERSION, "c", "m1", 1, "", 2, msgpack.ExtType(1, b"x")]), "not msgpack"),
    ],
)
def test_what_no_node_would_send_is_named(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode_envelope(data)


@pytest.mark.parametrize("epoch", [1, (1,), ("1", "m1"), (1, 2), (1, "m1", 0), None])
def test_an_epoch_id_is_a_number_and_a_master(epoch: object) -> None:
    with pytest.raises(ProtocolError):
        decode_envelope(msgpack.packb([*parts(EpochPrepare((1, "m1")))[:6], epoch]))


def test_a_message_over_the_limit_is_not_even_decoded() -> None:
    with pytest.raises(ProtocolError, match="limit"):
        decode_envelope(b"\x90" * (codec.MESSAGE_LIMIT_BYTES + 1))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (msgpack.packb([1]), "version"),
        (msgpack.packb([2, 0, 1]), "version"),
        (msgpack.packb([1, 99]), "unknown kind"),
        (msgpack.packb([1, 0]), "fields"),
    ],
)
def test_bad_records_are_named(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode_record(data)


def test_an_epoch_from_before_splits_were_a_part_of_it_is_read_and_a_shorter_one_is_not() -> None:
    *head, epoch = msgpack.unpackb(encode_record(EpochInstalled(EPOCH)), strict_map_key=False)
    found = decode_record(msgpack.packb([*head, epoch[:9]]))
    assert found == EpochInstalled(dataclasses.replace(EPOCH, path=(), agreed=(), mode=""))
    for wrong in (epoch[:8], [*epoch, ""]):
        with pytest.raises(ProtocolError, match="Epoch with 12 fields"):
            decode_record(msgpack.packb([*head, wrong]))


@given(st.binary(max_size=200))
def test_garbage_gives_a_protocol_error_and_nothing_else(data: bytes) -> None:
    for decode in (decode_envelope, decode_record):
        try:
            decode(data)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    ("bomb", "most_mb"),
    [
        # Headers that promise more than there is
        (b"\xdd\xff\xff\xff\xff", 1),
        (b"\xdf\xff\xff\xff\xff", 1),
        (b"\xdb\xff\xff\xff\xff", 1),
        (b"\xc9\xff\xff\xff\xff\x01", 1),
        # Depth
        (b"\x91" * 1_000_000, 32),
        (b"\x81\xa1k" * 300_000, 64),
        # Maps: a byte each
        (b"\xdd" + (4_000_000).to_bytes(4, "big") + b"\x80" * 4_000_000, 64),
        (b"\x95\x05\xa6orders\xa2m1\x01" + b"\xdd" + (4_000_000).to_bytes(4, "big") + b"\x80" * 4_000_000, 64),
        # Lists: two bytes each with an item, three with an empty one inside
        (b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\x91\xc0" * 1_000_000, 36),
        (b"\xdd" + (700_000).to_bytes(4, "big") + b"\x91\x91\xc0" * 700_000, 36),
        (b"\xdd" + (700_000).to_bytes(4, "big") + b"\x92\x01\x02" * 700_000, 36),
    ],
)
def test_what_is_small_on_the_wire_and_large_in_memory_is_refused_before_it_is(bomb: bytes, most_mb: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode_envelope(bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < most_mb * 1024 * 1024


def test_messages_stand_one_after_the_other_and_their_number_is_bounded() -> None:
    one, other = (encode_envelope("orders", "m1", 3, Fetch((("m2", name),))) for name in ("t-1", "t-2"))
    assert decode_envelopes(one + other) == [decode_envelope(one), decode_envelope(other)]
    with pytest.raises(ProtocolError, match="more than one message"):
        decode_envelope(one + other)
    with pytest.raises(ProtocolError, match="more than 64 messages"):
        decode_envelopes(one * 65)
    with pytest.raises(ProtocolError):
        decode_envelopes(one + other[:-1])
