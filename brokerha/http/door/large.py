"""A large transaction that a request hands over in parts, as its body comes (model/reserved/staging.py).

    parts = Parts(call, txid)
    async with parts:              what fails is dropped; with an Idempotency-Key it stays for an hour, so that the same request goes on where it was
        await parts.stage(operations)         answered when a worker has it: so the sender is as fast as the workers
        reply = await parts.commit()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from brokerha.http.door.call import Call
from brokerha.http.door.passing import write
from brokerha.model.errors import BrokerhaError, InvalidRequest, OutcomeUnknown
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation
from brokerha.model.requests import APPLIED_LEVEL, Reply
from brokerha.model.reserved.staging import COMMIT, DROP, STAGE, pause_s

_APPLIED: Final = (APPLIED_LEVEL, 1)


def is_long(call: Call) -> bool:
    """Whether the body is longer than a transaction, by what the request announces."""
    announced = call.header(b"content-length")
    return announced.isdecimal() and int(announced) > BODY_LIMIT_BYTES


class Parts:
    """The parts of one."""

    def __init__(self, call: Call, txid: TxId) -> None:
        self._call = call
        self._txid = txid
        self.number = 0
        """Of the last part that was staged."""
        self._is_kept = bool(call.key())
        """Whether the same request may go on with them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A commit without an answer may take place yet: the id that the answer names tells.
        if isinstance(error, BrokerhaError) and not isinstance(error, OutcomeUnknown) and self.number and not self._is_kept:
            with contextlib.suppress(BrokerhaError):
                await write(self._call, [(DROP, self._txid)], f"{self._txid}.drop")

    async def stage(self, operations: Sequence[Operation]) -> None:
        """Hand over one part, and leave the cluster to others for a while."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self.number += 1
        rows: list[Operation] = [(STAGE, self._txid, self.number), *operations]
        await write(self._call, rows, f"{self._txid}.{self.number}", ack=_APPLIED)
        await asyncio.sleep(pause_s(loop.time() - began_s))

    async def commit(self) -> Reply:
        """Have them take place, within the longest time of the door."""
        if not self.number:
            raise InvalidRequest("the body holds nothing")
        ack = self._call.ack()
        # Whether it takes place is known when a worker has judged it.
        ack = ack if ack[0] == APPLIED_LEVEL else _APPLIED
        timeout_ms = self._call.door.limits.timeout_limit_ms
        return await write(self._call, [(COMMIT, self._txid, self.number)], self._txid, timeout_ms, ack=ack)
