"""Bytes to messages and records, and back; the class of each is its only definition.

On the wire an envelope is the msgpack list ``[version, cluster, sender, incarnation, process, kind, field, field, …]``, and
several of them can follow each other; in the journal a record is ``[version, kind, field, …]``. ``kind`` is the index in
`MESSAGES` or `RECORDS`. Each field is checked against the annotation of its class before an object is made, so that later code
never sees a wrong type. Limits on size and nesting apply before decoding (a msgpack bomb: a length header takes five bytes and
can announce gigabytes).

A class can get new last fields with default values. An older reader refuses a longer list, so a new field needs a new `VERSION`
unless all nodes are replaced together. Records on disk with fewer fields stay readable (`LEAST`).

>>> from brokerha.model.wire.messages import Fetch
>>> decode_envelope(encode_envelope("orders", "m1", 3, Fetch((("m2", "t-1"),)))).message
Fetch(wanted=(('m2', 't-1'),))
"""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgpack

from brokerha.model.epochs import Epoch
from brokerha.model.errors import ProtocolError
from brokerha.model.ids import is_node_id
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.records import RECORDS, Record
from brokerha.model.wire.messages import MESSAGES, Envelope, Message

VERSION = 1
"""Version of records."""
WIRE_VERSION = 9
"""Version of messages."""
MESSAGE_LIMIT_BYTES = 12 * 1024 * 1024
"""Limit of a message, below RabbitMQ's own limit of 16 MiB; senders split much earlier."""
TOGETHER_LIMIT = 64
"""Limit of messages that travel as one."""

LEAST: dict[type, int] = {Epoch: 9}
"""Fields of a class when a journal could first hold it, if it has more now; missing ones get their defaults."""

Reader = Callable[[Any], Any]


class OtherVersion(ProtocolError):
    """A message of a node of another version of brokerha, as far as its head can be read."""

    def __init__(self, version: int, cluster: str, sender: str) -> None:
        super().__init__(f"{sender!r} runs another version of brokerha: its messages have version {version}, here {WIRE_VERSION}")
        self.cluster, self.sender = cluster, sender


class _Shape(NamedTuple):
    """Shape and reader of the values of one annotation."""

    kind: type | None
    """Type that msgpack returns; None when there are several."""
    read: Reader
    """Return the object. Raises ProtocolError."""
    is_plain: bool = False
    """Whether `kind` is the complete check, and the value is the object."""
    is_kept: bool = True
    """Whether the value is the object after the check."""


def _wrong(expected: str, value: object) -> ProtocolError:
    return ProtocolError(f"expected {expected}, found {type(value).__name__}")


def _exact(kind: type) -> _Shape:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong(kind.__name__, value)
        return value

    return _Shape(kind, read, is_plain=True)


def _any_of(options: tuple[Any, ...]) -> _Shape:
    plain = {o if isinstance(o, type) else type(None) for o in options if o is None or isinstance(o, type)}
    complex_readers = [_shape(o).read for o in options if o is not None and not isinstance(o, type)]

    def read(value: Any) -> Any:
        if type(value) in plain:
            return value
        for reader in complex_readers:
            return reader(value)
        raise _wrong(" or ".join(sorted(p.__name__ for p in plain)), value)

    return _Shape(None, read, is_kept=False)


def _wrong_kind(values: Iterable[Any], kind: type) -> ProtocolError:
    return _wrong(kind.__name__, next(value for value in values if type(value) is not kind))


def _sequence(item: Any) -> _Shape:
    if typing.get_origin(item) is tuple and Ellipsis not in typing.get_args(item):
        shape = typing.get_args(item)
        if all(isinstance(t, type) and t in (int, str, bytes) for t in shape):
            return _Shape(tuple, _plain_rows(shape))
    kind, read_item, is_plain, is_kept = _shape(item)

    def read(value: Any) -> Any:
        if type(value) is not tuple:
            raise _wrong("list", value)
        if is_plain and kind is not None:
            if not {*map(type, value)} <= {kind}:
                raise _wrong_kind(value, kind)
            return value
        items = tuple([read_item(v) for v in value])
        return value if is_kept else items

    return _Shape(tuple, read, is_kept=is_kept)


def _plain_rows(shape: tuple[type, ...]) -> Reader:
    """Return a fast reader for long lists of short rows, such as entries and bodies: the decoded rows stay as they are."""
    width = len(shape)

    def read(value: Any) -> Any:
        if type(value) is not tuple:
            raise _wrong("list", value)
        if not ({*map(type, value)} <= {tuple} and {*map(len, value)} <= {width}):
            raise _wrong(f"list of {width}", next(row for row in value if type(row) is not tuple or len(row) != width))
        for place, (kind, column) in enumerate(zip(shape, zip(*value, strict=True), strict=False)):
            if not {*map(type, column)} <= {kind}:
                raise _wrong(f"{kind.__name__} in column {place}", value)
        return value

    return read


def _fixed(hints: tuple[Any, ...]) -> _Shape:
    shapes = [_shape(hint) for hint in hints]
    readers = [shape.read for shape in shapes]
    kinds = tuple([shape.kind for shape in shapes])
    looked_at = [(place, shape.read) for place, shape in enumerate(shapes) if not shape.is_plain]
    is_kept = all(shape.is_kept for shape in shapes)

    def read(value: Any) -> Any:
        if type(value) is not tuple or len(value) != len(readers):
            raise _wrong(f"list of {len(readers)}", value)
        if is_kept and tuple(map(type, value)) == kinds:
            for place, look in looked_at:
                look(value[place])
            return value
        return tuple([r(v) for r, v in zip(readers, value, strict=True)])

    return _Shape(tuple, read, is_kept=is_kept)


def _mapping(key: Any, item: Any) -> _Shape:
    keys, items = _shape(key), _shape(item)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("map", value)
        if keys.is_plain and items.is_plain and keys.kind is not None and items.kind is not None:
            if not {*map(type, value)} <= {keys.kind}:
                raise _wrong_kind(value, keys.kind)
            if not {*map(type, value.values())} <= {items.kind}:
                raise _wrong_kind(value.values(), items.kind)
            return value
        return {keys.read(k): items.read(v) for k, v in value.items()}

    return _Shape(dict, read, is_kept=keys.is_plain and items.is_plain)


def _struct(cls: type) -> _Shape:
    hints = typing.get_type_hints(cls)
    shapes = [_shape(hints[f.name]) for f in dataclasses.fields(cls)]
    readers = [shape.read for shape in shapes]
    kinds = tuple([shape.kind for shape in shapes])
    looked_at = [(place, shape.read) for place, shape in enumerate(shapes) if not shape.is_plain]
    least = LEAST.get(cls, len(readers))

    def read(value: Any) -> Any:
        if type(value) is not tuple or not least <= len(value) <= len(readers):
            raise _wrong(f"{cls.__name__} with {len(readers)} fields", value)
        if tuple(map(type, value)) == kinds:
            fields = list(value)
            for place, look in looked_at:
                fields[place] = look(fields[place])
            return cls(*fields)
        return cls(*[r(v) for r, v in zip(readers, value, strict=False)])

    return _Shape(tuple, read, is_kept=False)


def _shape(hint: Any) -> _Shape:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(arguments[0])
        return _fixed(arguments)
    if origin is dict:
        return _mapping(*arguments)
    if origin in (types.UnionType, typing.Union):
        return _any_of(arguments)
    if dataclasses.is_dataclass(hint):
        return _struct(typing.cast("type", hint))
    return _exact(hint)


Getter = Callable[[Any], tuple[Any, ...]]
_GETTERS: dict[type, Getter] = {}


def _getter(cls: type) -> Getter:
    """Return a function that reads all fields of an object, in order."""
    names = [f.name for f in dataclasses.fields(cls)]
    found = _GETTERS[cls] = (
        operator.attrgetter(*names) if len(names) > 1 else lambda value: tuple([getattr(value, name) for name in names])
    )
    return found


def _fields(value: Any) -> tuple[Any, ...]:
    cls = type(value)
    return (_GETTERS.get(cls) or _getter(cls))(value)


def _numbers(classes: tuple[type, ...]) -> dict[type, tuple[int, Getter]]:
    return {cls: (n, _getter(cls)) for n, cls in enumerate(classes)}


_MESSAGE_NUMBERS = _numbers(MESSAGES)
_MESSAGE_READERS = [_struct(cls).read for cls in MESSAGES]
_RECORD_NUMBERS = _numbers(RECORDS)
_RECORD_READERS = [_struct(cls).read for cls in RECORDS]


def encode_envelope(cluster: str, sender: str, incarnation: int, message: Message, process: str = "") -> bytes:
    """Return the bytes of a message with its envelope."""
    number, values = _MESSAGE_NUMBERS[type(message)]
    envelope = (WIRE_VERSION, cluster, sender, incarnation, process, number, *values(message))
    data: bytes = msgpack.packb(envelope, default=_fields)
    return data


def decode_envelope(data: bytes) -> Envelope:
    """Return the only message in ``data``. Raises ProtocolError, which names the fault."""
    envelopes = decode_envelopes(data)
    if len(envelopes) > 1:
        message = "more than one message"
        raise ProtocolError(message)
    return envelopes[0]


def decode_envelopes(data: bytes) -> list[Envelope]:
    """Return the messages in ``data``, at least one. Raises ProtocolError, which names the fault."""
    found: list[Envelope] = []
    while len(found) < TOGETHER_LIMIT:
        values, data = _unpack(data, MESSAGE_LIMIT_BYTES)
        found.append(_envelope(values))
        if not data:
            return found
    message = f"more than {TOGETHER_LIMIT} messages"
    raise ProtocolError(message)


def _envelope(values: tuple[Any, ...]) -> Envelope:
    if len(values) < 6 or values[0] != WIRE_VERSION:
        message = f"not a message of version {WIRE_VERSION}"
        if len(values) >= 6 and type(values[0]) is int and all(type(each) is str for each in values[1:3]):
            raise OtherVersion(*values[:3])
        raise ProtocolError(message)
    _, cluster, sender, incarnation, process, number = values[:6]
    if type(cluster) is not str or type(sender) is not str or type(incarnation) is not int:
        message = "envelope without cluster, sender and incarnation"
        raise ProtocolError(message)
    if not is_node_id(sender) or type(process) is not str or (process and not is_node_id(process)):
        message = "the sender is no node id"
        raise ProtocolError(message)
    if type(number) is not int or not 0 <= number < len(_MESSAGE_READERS):
        message = f"unknown kind of message {number!r}"
        raise ProtocolError(message)
    return Envelope(cluster, sender, incarnation, _MESSAGE_READERS[number](values[6:]), process)


def encode_record(record: Record) -> bytes:
    """Return the bytes of a journal record."""
    number, values = _RECORD_NUMBERS[type(record)]
    data: bytes = msgpack.packb((VERSION, number, *values(record)), default=_fields)
    return data


def decode_record(data: bytes) -> Record:
    """Return the record in ``data``. Raises ProtocolError."""
    values, rest = _unpack(data, 4 * 1024 * 1024 * 1024 - 1)
    if rest or len(values) < 2 or values[0] != VERSION or type(values[1]) is not int:
        message = f"not a record of version {VERSION}"
        raise ProtocolError(message)
    if not 0 <= values[1] < len(_RECORD_READERS):
        message = f"unknown kind of record {values[1]!r}"
        raise ProtocolError(message)
    record: Record = _RECORD_READERS[values[1]](values[2:])
    return record


def _unpack(data: bytes, limit_bytes: int) -> tuple[tuple[Any, ...], bytes]:
    """Return the first list, and the bytes after it."""
    if len(data) > limit_bytes:
        message = f"{len(data)} bytes; the limit is {limit_bytes}"
        raise ProtocolError(message)
    rest = b""
    try:
        values = unpack_foreign(data)
    except msgpack.ExtraData as more:
        values, rest = more.unpacked, more.extra
    except BROKEN as error:
        message = f"not msgpack: {type(error).__name__}"
        raise ProtocolError(message) from None
    if type(values) is not tuple:
        message = "not a list"
        raise ProtocolError(message)
    return values, rest
