"""Compressed bodies: ``Content-Encoding: gzip`` or ``deflate``, decoded piece by piece.

The reader limits the output of each step, so a small body that would decode to a large one is never large in memory.

>>> inflater = inflater_of("deflate")
>>> inflater.feed(zlib.compress(b"a" * 10))
>>> inflater.step(6), inflater.step(6), inflater.step(6), inflater.finish()
(b'aaaaaa', b'aaaa', b'', None)
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from brokerha.model.errors import InvalidRequest, UnsupportedType

ACCEPTED: Final = "gzip, deflate"
MEMBERS_LIMIT: Final = 1000
"""Most streams of one gzip body, one after another."""
_GZIP, _ZLIB, _RAW = 31, 15, -15


def inflater_of(header: str) -> Inflater | None:
    """Return the decoder of a body with this ``Content-Encoding``; None when it needs none. Raises UnsupportedType."""
    codings = [coding for part in header.lower().split(",") if (coding := part.strip()) not in {"", "identity"}]
    if not codings:
        return None
    if codings not in (["gzip"], ["x-gzip"], ["deflate"]):
        raise UnsupportedType(f"content coding {header[:80]!r} is not read here: send the body as it is, or with one of {ACCEPTED}")
    return Inflater(is_gzip=codings != ["deflate"])


class Inflater:
    """The decoder of one body, step by step; `step` and `finish` raise InvalidRequest for a broken stream."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._name = "gzip" if is_gzip else "deflate"
        self._engine: Any = None
        self._members = 0
        self._input = b""
        self._is_full = False
        """Whether the last step ended because of its size: more can come without more input."""

    def feed(self, data: bytes) -> None:
        """Take more input."""
        self._input += data

    def step(self, most_bytes: int) -> bytes:
        """Return the next bytes of the body, ``most_bytes`` at most; empty when it needs more input."""
        while self._input or self._is_full:
            if (self._engine is None or self._engine.eof) and not (self._input and self._begin()):
                return b""
            try:
                decoded: bytes = self._engine.decompress(self._input, most_bytes)
            except zlib.error as error:
                raise InvalidRequest(f"the body is not {self._name}, as Content-Encoding says: {error}") from None
            self._input = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            self._is_full = len(decoded) == most_bytes and not self._engine.eof
            if decoded:
                return decoded
        return b""

    def finish(self) -> None:
        """End the body. Raises InvalidRequest when the stream is unfinished."""
        if self._engine is None or not self._engine.eof or self._input:
            raise InvalidRequest(f"the body is cut off: its {self._name} stream has no end")

    def _begin(self) -> bool:
        """Begin a stream; return whether enough input is there."""
        self._members += 1
        if self._members > (MEMBERS_LIMIT if self._is_gzip else 1):
            raise InvalidRequest(
                f"the body has more than {MEMBERS_LIMIT} gzip streams"
                if self._is_gzip
                else "the body goes on after the end of its deflate stream"
            )
        if self._is_gzip:
            self._engine = zlib.decompressobj(_GZIP)
            return True
        if len(self._input) < 2:
            self._members = 0
            return False
        # Many clients send the bare stream without the two bytes that RFC 9110 requires before it.
        is_whole = self._input[0] & 0x0F == 8 and int.from_bytes(self._input[:2], "big") % 31 == 0
        self._engine = zlib.decompressobj(_ZLIB if is_whole else _RAW)
        return True
