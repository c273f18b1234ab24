"""What every call of a client goes through: its time, its transaction id, its wire."""

from __future__ import annotations

import itertools
import secrets
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any, Protocol

from brokerha.client.reads import Least, Reads
from brokerha.model.errors import InvalidRequest, TimedOut
from brokerha.model.ids import Lsn, TxId, is_tx_id
from brokerha.model.outside.levels import parse_ack, parse_apart, parse_min_lsn
from brokerha.model.requests import WAIT
from brokerha.ports.front import ReadOutcome
from brokerha.ports.wire import Wire

GRACE_S = 5.0
"""How much longer than its deadline a call waits for the wire, which answers by itself when it is healthy."""


class Begun(Protocol):
    """A transaction that may still be open."""

    def abandon(self) -> None:
        """Roll back what is open, without an error."""


class Calls(Reads):
    """One program's connection, without what can be done with it."""

    def __init__(self, wire: Wire, timeout: float = 30.0, ack: str = "applied", apart: str = WAIT) -> None:
        parse_ack(ack)
        self.wire = wire
        self.timeout = timeout
        """Seconds that a call may take which does not say."""
        self.ack = ack
        """Level of writes that do not say."""
        self.apart = parse_apart(apart)
        """What writes that do not say want at a master that is apart: ``wait`` or ``refuse``."""
        self.token = secrets.token_hex(8)
        """Names this connection to the masters: a transaction that is in use belongs to it."""
        self.transactions: set[Begun] = set()
        """Begun through this connection and not over; `close` rolls them back."""
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Roll back what is open, then disconnect. Idempotent."""
        for transaction in list(self.transactions):
            transaction.abandon()
        self.wire.close()

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Least = None, timeout: float | None = None
    ) -> ReadOutcome:
        """One read of ports.Front, as it comes."""
        seconds = self.seconds(timeout)
        least = self.least_lsn() if min_lsn is None else parse_min_lsn(str(min_lsn), "min_lsn")
        future = self.wire.read(kind, name, arguments, least, milliseconds(seconds))
        try:
            return future.result(seconds + GRACE_S)
        except WaitTimeout:
            raise TimedOut(f"the read was not answered in {seconds:g} seconds: try again") from None

    def ask(self, what: str, arguments: dict[str, Any], timeout: float | None = None) -> Any:
        """A question of ports.Wire."""
        return self.wire.ask(what, arguments, milliseconds(self.seconds(timeout)))

    def new_txid(self) -> TxId:
        """A transaction id that nobody else makes."""
        return f"{self.token}-{next(self._numbers)}"

    def txid(self, key: TxId) -> TxId:
        """The id of a write: the caller's key if there is one. Raises InvalidRequest when it cannot be one."""
        if key and not is_tx_id(key):
            raise InvalidRequest("an idempotency key has 1 to 128 visible ASCII characters and no space")
        return key or self.new_txid()

    def seconds(self, timeout: float | None) -> float:
        """The time of a call. Raises InvalidRequest when it is not above 0."""
        seconds = self.timeout if timeout is None else timeout
        if not seconds > 0:
            raise InvalidRequest(f"timeout is a number of seconds above 0, not {seconds!r}")
        return seconds

    def note(self, lsn: Lsn) -> None:
        """A write of this client has this LSN."""

    def least_lsn(self) -> Lsn:
        """The LSN that reads ask for which do not say."""
        return 0


def milliseconds(seconds: float) -> int:
    """A time as the wire wants it."""
    return max(1, round(seconds * 1000))
