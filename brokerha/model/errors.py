"""Every error that brokerha raises on purpose, on one page.

The tree is split by the action that is left to the caller:

    BrokerhaError
      InvalidRequest      the request is wrong; the same request will never succeed        HTTP 400, exit 64 / 2
        TooLarge          ... because of its size                                          HTTP 413
        UnsupportedType   ... because of its content type                                  HTTP 415
        NotAcceptable     ... no result format that the caller accepts                     HTTP 406
        UnknownRepository ... names a repository that does not exist                       HTTP 404
        NotFound          ... asks for a key that does not exist                           HTTP 404
          UnknownSnapshot ... names a snapshot that does not exist, or has not this table  HTTP 404
          UnknownTransaction ... names a transaction that is not open there                HTTP 404
        KeyReused         ... the idempotency key names another transaction                HTTP 409
        WrongState        ... comes at a moment when the transaction does not allow it         HTTP 409
        WentBack          ... is about lines of the log that a split made void               HTTP 409
        NotAllowed        ... is of a user who is not known, or may not do that              HTTP 401, 403, 429
      Rejected            its content failed at its LSN, everywhere; it would fail again   HTTP 409
      Aborted             nothing happened and nothing will; run it again                  HTTP 409
        Conflict          ... another transaction was in its way; also a kind of Rejected  HTTP 409, 412
      OutcomeUnknown      the deadline passed; ask again by the transaction id             HTTP 504
      NotReady            this node cannot serve now (starting, no worker, busy); try again   HTTP 503
        NotPrimary        ... another process of its master acts: ask that one             HTTP 503
        ReadOnly          ... takes no writes now, with the reason                         HTTP 503
        TimedOut          a read did not finish in its time                                HTTP 503
      Unreachable         no node answered                                                 exit 3
      ConfigurationError  the cluster file or the command line is wrong                    exit 78
      JournalError        the durable record cannot be read or written
        JournalFull       ... because the disk is full
        JournalDamaged    ... because a record differs from the written one
        JournalForeign    ... because it belongs to another cluster or node
        JournalInUse      ... because another process holds it
      StoreError          a store cannot be opened, read or written
        StoreFull         ... because the disk is full
        StoreStuck        ... until it is opened again: its files are right, but accept no more writes
        StoreDamaged      ... because data differs from the written data: the copy has to be replaced
        StoreDiffers      ... because a line of the log led to other content than it says
      ProtocolError       bytes from the wire that no brokerha node would send

Any other exception that escapes is a bug of brokerha.
"""

from __future__ import annotations

from typing import Final

REMEDY: Final = "what to do: "
"""Begins the note of an error that says its remedy; nothing follows where the text of the error says it."""


class BrokerhaError(Exception):
    """Base of all errors that brokerha raises on purpose."""

    apart: str = ""
    """For a read that found nothing: the state word of the master, if it was apart (ports.front.ReadOutcome)."""
    stale_ms: int | None = None


class InvalidRequest(BrokerhaError):
    """The request can never succeed as it is; the text says what is wrong and what to write instead."""


class TooLarge(InvalidRequest):
    """The request, or one part of it, is over a limit that the text names."""


class UnsupportedType(InvalidRequest):
    """The content type of the request body is not one that brokerha reads."""


class NotAcceptable(InvalidRequest):
    """None of the result formats that the caller accepts can be written."""


class UnknownRepository(InvalidRequest):
    """The request names a repository that does not exist."""


class NotFound(InvalidRequest):
    """The request asks for a key that does not exist."""


class UnknownSnapshot(NotFound):
    """The request names a snapshot of tables that does not exist, or that does not have this table."""


class UnknownTransaction(NotFound):
    """The request names a transaction that is not open there: it was never begun, or is long over."""


class KeyReused(InvalidRequest):
    """The idempotency key belongs to a transaction with other operations."""


class WrongState(InvalidRequest):
    """The step is not allowed in the state that the transaction, or the process, is in; the text names both."""


class WentBack(InvalidRequest):
    """The log went back after a split, and lines read after that place are void; the text says where to continue."""


class NotAllowed(InvalidRequest):
    """The interface does not know the user, or the user may not do that; the text names the required role."""


class Rejected(BrokerhaError):
    """The transaction was ordered, failed at its LSN on every site, and changed nothing.

    `txid` and `lsn` name it; the text is the reason that the executing worker gave. The same work fails again, except for `Conflict`.
    """

    def __init__(self, reason: str, txid: str = "", lsn: int = 0) -> None:
        super().__init__(reason)
        self.txid = txid
        self.lsn = lsn


class Aborted(BrokerhaError):
    """Nothing happened and nothing will; the same work can safely be run again."""


class Conflict(Rejected, Aborted):
    """Another transaction changed data that this one had read or expected, or holds them; run it again, from its first read on."""


CONFLICT = "conflict: "
"""Prefix of the reason for a rejection that another transaction caused: the log keeps reasons as text."""


def rejection(reason: str, txid: str = "", lsn: int = 0) -> Rejected:
    """Return the error for a transaction that was rejected at its place in the order."""
    return (Conflict if reason.startswith(CONFLICT) else Rejected)(reason, txid, lsn)


TOO_MUCH = "too much: "
"""Prefix of the reason for changes that do not fit into one line of the log."""


def aborted(reason: str) -> Aborted:
    """Return the error for a transaction that was rolled back for this reason, or could not be prepared."""
    return Conflict(reason) if reason.startswith(CONFLICT) else Aborted(reason)


class OutcomeUnknown(BrokerhaError):
    """The deadline passed before the outcome was known; the transaction can still take effect, or not.

    Send it again with the same idempotency key, or ask for the outcome of `txid`. A command has none: the text says where to look.
    """

    def __init__(self, txid: str, text: str = "") -> None:
        super().__init__(text or f"outcome unknown: ask for transaction {txid}, or send it again with the same key")
        self.txid = txid


USE_FORCE: Final = "use --force (over HTTP: force=true)"
"""How a person overrules the refusal of a command, on the command line and over HTTP."""


def write_unknown(txid: str, reason: str) -> OutcomeUnknown:
    """Return the error of a write without an answer. It says how to try again safely, also without a key of one's own."""
    return OutcomeUnknown(
        txid, f"outcome unknown of transaction {txid}: {reason}; ask for it, or send it again with this id as its key"
    )


class NotReady(BrokerhaError):
    """This node cannot serve the request now; the text says why, and the request can be tried again."""


class NotPrimary(NotReady):
    """This process is a standby and did nothing; another process of its master can serve the request."""


class ReadOnly(NotReady):
    """This node serves reads only; the text says why."""


class TimedOut(NotReady):
    """A read did not finish, or did not reach the LSN it asked for, in its time."""


class Unreachable(BrokerhaError):
    """No node answered at the given address within the deadline."""

    def __init__(self, text: str = "", remedy: str | None = "") -> None:
        super().__init__(text)
        self.remedy = remedy
        """Advice to people, unless it is to start nodes (empty); None if the text contains it."""
        if remedy != "":
            # When an error ends a task on Spark, only its traceback reaches the driver.
            self.add_note(f"{REMEDY}{remedy or ''}")


class Closed(Unreachable):
    """This program itself has closed the connection: no later try can succeed."""

    def __init__(self, text: str = "the connection was closed by this program", remedy: str | None = "") -> None:
        super().__init__(text, remedy)


class ConfigurationError(BrokerhaError):
    """The configuration is wrong; the text names the file, the line and what to write instead."""


class JournalError(BrokerhaError):
    """The durable record of a process cannot be read or written."""


class JournalFull(JournalError):
    """There is no space left to write; no record of the turn was written."""


class JournalDamaged(JournalError):
    """A record differs from the written one; the text names it and the remedy, `damage` only the record and its place."""

    def __init__(self, damage: str, what_to_do: str = "") -> None:
        super().__init__(f"{damage}: {what_to_do}" if what_to_do else damage)
        self.damage = damage


class JournalForeign(JournalError):
    """The data directory belongs to another cluster or another node."""


class JournalInUse(JournalError):
    """Another process has the data directory open: two processes with one node id."""


class StoreError(BrokerhaError):
    """A store cannot be opened, read or written."""


class StoreFull(StoreError):
    """There is no space left to write; nothing of the write was kept."""


class StoreStuck(StoreError):
    """The open store accepts no more writes after one failed in the middle; its files are right, and it can be opened again."""


class StoreDamaged(StoreError):
    """Data on disk differs from the written data: this copy has to be replaced by a good one."""


class StoreDiffers(StoreDamaged):
    """Applying a line of the log led to other content than the log says; none of it was kept.

    `lsn` is that of the line, `fingerprint` is that of this copy after it.
    """

    def __init__(self, text: str, lsn: int = 0, fingerprint: bytes = b"") -> None:
        super().__init__(text)
        self.lsn = lsn
        self.fingerprint = fingerprint


class ProtocolError(BrokerhaError):
    """Bytes that no brokerha node of this version would send; the message is counted and dropped."""


def may_pass(error: BrokerhaError) -> bool:
    """Tell whether the same request can succeed elsewhere, or here later: the node is away, restarting, full or broken."""
    return type(error) in {NotReady, NotPrimary} or isinstance(error, (StoreError, JournalError))


def may_run_again(error: BaseException) -> bool:
    """Tell whether a transaction that ended in this error had no effect, and can succeed from its beginning."""
    return isinstance(error, (Aborted, NotReady, Unreachable)) and not isinstance(error, (ReadOnly, Closed))


def error_named(name: str, text: str, txid: str = "", lsn: int = 0, remedy: str | None = "") -> BrokerhaError:
    """Return the error of the class with this name, as it came over a wire; `NotReady` for an unknown name."""
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, BrokerhaError)):
        return NotReady(f"{name}: {text}")
    if issubclass(kind, Rejected):
        return kind(text, txid, lsn)
    if issubclass(kind, OutcomeUnknown):
        return kind(txid, text)
    return kind(text, remedy) if issubclass(kind, Unreachable) else kind(text)
