"""One answer, and the only table from errors to status codes.

Every error body is one sentence with the problem and the remedy, as text, or as JSON for a caller that asks for JSON. The header
``Brokerha-Error`` has the name of the class in model/errors.py, so that a client program gets the same error. ``Brokerha-Tx`` and
``Brokerha-Lsn`` name the transaction if there is one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from brokerha.model import errors
from brokerha.model.errors import BrokerhaError

STATUS_OF: dict[type[BrokerhaError], int] = {
    errors.InvalidRequest: 400,
    errors.TooLarge: 413,
    errors.UnsupportedType: 415,
    errors.NotAcceptable: 406,
    errors.UnknownRepository: 404,
    errors.NotFound: 404,
    errors.KeyReused: 409,
    errors.WrongState: 409,
    errors.WentBack: 409,
    errors.NotAllowed: 403,
    errors.Rejected: 409,
    errors.Aborted: 409,
    errors.OutcomeUnknown: 504,
    errors.NotReady: 503,
    errors.JournalError: 503,
    errors.StoreError: 503,
    BrokerhaError: 500,
}
"""Status by class; other classes have the status of their nearest base class."""

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
MSGPACK = "application/x-msgpack"
RETRY_AFTER_S = 1
PIECE_BYTES = 64 * 1024
"""Most bytes of an answer that are sent at once: what a client does not take waits in memory."""
TEXT_LIMIT = 4000
"""Most characters of an error's text, which can repeat client input."""
_NOT_IN_HEADERS = re.compile(r"[^\t -~\xa0-\xff]")

Send = Any
"""ASGI's ``send``."""


class Answer:
    """Status, headers and body; the body can come in pieces."""

    __slots__ = ("body", "content_type", "headers", "pieces", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = TEXT,
        headers: Mapping[str, str | int] | None = None,
        pieces: AsyncIterator[bytes] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers or {}
        self.pieces = pieces

    async def send(self, send: Send, stall_s: float | None = None) -> None:
        """Send the answer. Raises TimeoutError when the client does not take the next piece, and the errors of the pieces."""
        # A value can repeat client input, such as an invalid transaction id.
        headers = [
            (name.lower().encode(), _NOT_IN_HEADERS.sub("?", str(value)).encode("latin-1")) for name, value in self.headers.items()
        ]
        if self.status not in {204, 304}:
            headers.append((b"content-type", self.content_type.encode()))
            if self.pieces is None:
                headers.append((b"content-length", str(len(self.body)).encode()))
        is_short = self.pieces is None and len(self.body) <= PIECE_BYTES
        async with asyncio.timeout(stall_s):
            # It waits for a client that does not read an earlier answer.
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            if is_short:
                await send({"type": "http.response.body", "body": self.body})
                return
        async for piece in self.pieces or _whole(self.body):
            for at in range(0, len(piece), PIECE_BYTES):
                async with asyncio.timeout(stall_s):
                    await send({"type": "http.response.body", "body": piece[at : at + PIECE_BYTES], "more_body": True})
        async with asyncio.timeout(stall_s):
            await send({"type": "http.response.body", "body": b""})


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


def text(content: str, status: int = 200, headers: Mapping[str, str | int] | None = None) -> Answer:
    """Return a text answer, with a new line at the end."""
    return Answer(status, (content.rstrip("\n") + "\n").encode("utf-8", "replace"), headers=headers)


def as_json(content: object, status: int = 200, headers: Mapping[str, str | int] | None = None) -> Answer:
    """Return a JSON answer, with a new line at the end for people at a terminal."""
    return Answer(status, json.dumps(content, ensure_ascii=False).encode() + b"\n", JSON, headers)


def told(sentence: str, status: int, *, wants_json: bool) -> Answer:
    """Return the answer for a problem that is no error of model/errors.py."""
    return as_json({"error": "", "text": sentence}, status) if wants_json else text(sentence, status)


def status_of(error: BrokerhaError) -> int:
    """Return the status code of an error."""
    return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)


def of_error(error: BrokerhaError, *, wants_json: bool, sentence: str = "") -> Answer:
    """Return the answer for an error; ``sentence`` replaces its text."""
    name, status = type(error).__name__, status_of(error)
    facts: dict[str, Any] = {"error": name, "text": (sentence or str(error))[:TEXT_LIMIT] or name}
    headers: dict[str, str | int] = {"Brokerha-Error": name}
    txid, lsn = getattr(error, "txid", ""), getattr(error, "lsn", 0)
    if txid:
        facts["txid"] = headers["Brokerha-Tx"] = txid
    if lsn:
        facts["lsn"] = headers["Brokerha-Lsn"] = lsn
    if error.apart:
        headers["Brokerha-Apart"] = error.apart
        if error.stale_ms is not None:
            headers["Brokerha-Stale-Ms"] = error.stale_ms
    if status == 503:
        headers["Retry-After"] = RETRY_AFTER_S
    if status == 413:
        # The rest of the body is never read, so the connection cannot be used again.
        headers["Connection"] = "close"
    if wants_json:
        return as_json(facts, status, headers)
    answer = text(facts["text"], status)
    answer.headers = headers
    return answer
