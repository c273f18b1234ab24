"""Properties and headers of messages on their way to and from RabbitMQ: corrections of py-amqp's encoding and decoding.

    written   only types that RabbitMQ documents: py-amqp writes numbers above 32 bits as ``L``, which is no type of RabbitMQ and
              crashes some clients (amqplib); here they are ``l``, 64 bits with a sign
    read      properties that py-amqp cannot read (text that is no UTF-8, an unknown type, endlessly nested tables) would end the
              connection at each delivery; here such a message gets only the header `UNREADABLE`, and is set aside. A time after
              the year 9999, as from a clock that counts milliseconds, is read as a number

`install` changes py-amqp's decoding for the whole process. https://www.rabbitmq.com/amqp-0-9-1-errata lists the types.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import pack
from typing import Any, Final

from amqp import basic_message, serialization, spec
from amqp.serialization import PROPERTY_CLASSES, decode_properties_basic

UNREADABLE: Final = "brokerha-unreadable"
"""Why the properties of a message cannot be read."""
DEPTH_LIMIT: Final = 32
"""Nesting limit of tables and lists in headers."""
_KEY_LIMIT_BYTES: Final = 255
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


class Message(basic_message.Message):  # type: ignore[misc]  # py-amqp has no types.
    """A message to publish; its headers are encoded by `table`."""

    properties: dict[str, Any]

    # A table is encoded like text of its bytes: the length, then the bytes.
    PROPERTIES = [  # noqa: RUF012  (py-amqp's own name and type)
        (name, "S" if name == "application_headers" else kind) for name, kind in basic_message.Message.PROPERTIES
    ]

    def _serialize_properties(self) -> bytes:
        given: dict[str, Any] = self.properties
        if given.get("application_headers") is not None:
            self.properties = {**given, "application_headers": table(given["application_headers"])}
        try:
            encoded: bytes = super()._serialize_properties()
        finally:
            self.properties = given
        return encoded


def table(headers: Mapping[Any, Any]) -> bytes:
    """Encode headers as the fields of a table, without its length. Raises TypeError for impossible or too deeply nested headers."""
    if _is_deeper(headers, DEPTH_LIMIT):
        raise TypeError(f"headers are nested more than {DEPTH_LIMIT} deep")
    return b"".join(_name(name) + _field(value) for name, value in headers.items())


def _name(name: Any) -> bytes:
    if not isinstance(name, (str, bytes)):
        raise TypeError(f"the name of a header is text, not {type(name).__name__}")
    encoded = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
    if len(encoded) > _KEY_LIMIT_BYTES:
        raise TypeError(f"the name of a header has {len(encoded)} bytes, {_KEY_LIMIT_BYTES} is the limit")
    return bytes([len(encoded)]) + encoded


def _field(value: Any) -> bytes:
    """Encode type and value of one field; a value without an own type is encoded as text."""
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return pack(">cB", b"t", value)
    if isinstance(value, int) and value in _INT64:
        return pack(">ci", b"I", value) if value in _INT32 else pack(">cq", b"l", value)
    if isinstance(value, float):
        return pack(">cd", b"d", value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return pack(">cQ", b"T", max(0, int(moment.timestamp())))
    if isinstance(value, Mapping):
        return _sized(b"F", b"".join(_name(name) + _field(each) for name, each in value.items()))
    if isinstance(value, (list, tuple)):
        return _sized(b"A", b"".join(map(_field, value)))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _sized(b"S", bytes(value))
    if isinstance(value, (str, int, Decimal)):
        return _sized(b"S", str(value).encode("utf-8", "surrogatepass"))
    raise TypeError(f"a header cannot be {type(value).__name__}")


def _sized(kind: bytes, data: bytes) -> bytes:
    return pack(">cI", kind, len(data)) + data


class _Time(datetime):
    """The datetime class for py-amqp, which reads times in headers by it."""

    @classmethod
    def fromtimestamp(cls, seconds: float, tz: Any = None) -> Any:
        try:
            return super().fromtimestamp(seconds, tz)
        except (ValueError, OverflowError, OSError):
            return _Seconds(seconds)


class _Seconds(int):
    """A time beyond the years of Python, in seconds."""

    def replace(self, **_: Any) -> int:
        return int(self)


def install() -> None:
    """Make py-amqp read properties by `read`. Idempotent."""
    serialization.datetime = _Time
    PROPERTY_CLASSES[spec.Basic.CLASS_ID] = read


def read(buffer: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Return the properties at an offset, and their end; only `UNREADABLE` when they cannot be read. Raises nothing."""
    try:
        properties, end = decode_properties_basic(buffer, offset)
        if _is_deeper(properties.get("application_headers") or {}, DEPTH_LIMIT):
            raise ValueError(f"headers are nested more than {DEPTH_LIMIT} deep")  # noqa: TRY301  (told as the others are)
    except Exception as error:  # noqa: BLE001  (py-amqp raises whatever its parts raise)
        return {"application_headers": {UNREADABLE: f"{type(error).__name__}: {error}"[:200]}}, len(buffer)
    return properties, end


def _is_deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and tables within a table are nested deeper."""
    found = [value]
    for _ in range(levels + 1):
        inner = (each.values() if isinstance(each, Mapping) else each for each in found)
        found = [each for values in inner for each in values if isinstance(each, (Mapping, list, tuple))]
        if not found:
            return False
    return True
