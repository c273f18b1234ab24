"""``brokerha restore --online``: a running cluster goes back to an earlier LSN, as one transaction in its order.

    backup ──> a copy at LSN 4711, beside, for as long as the command runs
                       │ what keys, queues and checks were
    log after 4711 ────┴──> one transaction (stores/backup/undoing.py) that expects the content that the log ends with
                                  │ conflict: somebody wrote meanwhile; the lines that came are looked at, too
                                  v
                       its LSN: all sites have the content of LSN 4711 from there on, and the log still has what was between

Saying it again changes nothing more. Every site and every client sees the state before, or the one after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgpack

from brokerha.cli.backup.places import checked_snapshot, size_text
from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer
from brokerha.cli.common.progress import progress
from brokerha.model.control import Check
from brokerha.model.errors import Conflict, InvalidRequest, NotReady, Rejected, TooLarge, aborted
from brokerha.model.fingerprints import differs, text_of
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow, Operation, pack_operations
from brokerha.stores.backup.undoing import Earlier, Message, Undoing

if TYPE_CHECKING:
    from brokerha.cli.common.cluster import Cluster
    from brokerha.client import Client
    from brokerha.ports.store import ReadAnswer
    from brokerha.stores.backup.directory import BackupDirectory
    from brokerha.stores.backup.manifest import Manifest
    from brokerha.stores.backup.restore_target import Target

ATTEMPTS: Final = 20
"""How often somebody may have written meanwhile."""
LINE_S: Final = 30.0
"""How long a master may take to show a line that is in the order."""
MESSAGES_AT_ONCE: Final = 1_000
NODE: Final = "restored"


class Readable(Protocol):
    """A copy, as far as it is read here."""

    def read(self, kind: str, name: str, arguments: dict[str, object]) -> ReadAnswer:
        """Answer a read."""


class EarlierCopy:
    """The wanted state, read from a copy (`undoing.Earlier`)."""

    def __init__(self, copy: Readable) -> None:
        self._copy = copy

    def _read(self, kind: str, name: str, **arguments: object) -> bytes:
        return b"".join(self._copy.read(kind, name, arguments).pieces)

    def value(self, table: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        rows = msgpack.unpackb(self._read("range", table, **{"from": key, "to": key + b"\0", "limit": 1}))
        return rows[0][1] if rows else None

    def messages(self, queue: str) -> list[Message]:
        """All messages of a queue, oldest first."""
        found: list[Message] = []
        while True:
            after = {"after": found[-1].id} if found else {}
            page = msgpack.unpackb(self._read("queue", queue, limit=MESSAGES_AT_ONCE, **after))
            found += [Message(*row) for row in page]
            if len(page) < MESSAGES_AT_ONCE:
                return found

    def checks(self) -> Mapping[str, Operation]:
        """The control suite."""
        rows = json.loads(self._read("control", ""))["checks"]
        return {row["name"]: ("control-add", *Check(**row)) for row in rows}


@contextmanager
def _earlier_copy(backup: BackupDirectory, manifest: Manifest, target: Target, folder: Path) -> Iterator[EarlierCopy]:
    """The wanted state as a copy in a folder, until the block ends."""
    from brokerha.nodes.restoring import Place, Restoring
    from brokerha.stores.copies.worker_copy import WorkerCopy

    place = folder / NODE
    work = Restoring(backup, manifest, target, manifest.cluster, [Place(NODE, "worker", place)], NODE)
    work.run(checked_snapshot(backup, manifest))
    copy = WorkerCopy(place, cluster=manifest.cluster, node=NODE)
    try:
        yield EarlierCopy(copy)
    finally:
        copy.close()


class OnlineRestore:
    """One cluster that is taken back to an earlier state of it."""

    def __init__(self, client: Client, target: Target) -> None:
        self._client = client
        self._target = target
        self._undoing = Undoing()
        self._read_lsn: Lsn = target.lsn
        self._fingerprint = target.fingerprint
        """Of the content at the last line that was read."""

    def check(self) -> Lsn:
        """The LSN that the cluster is at. Raises InvalidRequest when its log does not lead there from the wanted state."""
        bounds, wanted = self._client.entries(0, 0), self._target.lsn
        first, last = bounds["first_lsn"], bounds["last_lsn"]
        if wanted > last:
            raise InvalidRequest(f"the cluster is at LSN {last}, before LSN {wanted} of the backup: it is another one, or was restored since")
        if first > wanted + 1:
            raise InvalidRequest(
                f"the log of the cluster begins with LSN {first}, and what came after LSN {wanted} is not all held any more: "
                "take a later backup, or restore with the cluster stopped (--all)"
            )
        if first <= wanted and differs(self._fingerprint_at(wanted), self._target.fingerprint):
            raise InvalidRequest(f"the cluster had another content at LSN {wanted} than the backup has: they have different histories")
        return int(last)

    def run(self, earlier: Earlier, *, dry_run: bool) -> dict[str, Any]:
        """Read, and write until nobody wrote in between. Raises NotReady, Rejected, TooLarge, and what writes raise."""
        for _ in range(ATTEMPTS):
            self._read_on()
            operations = self._undoing.operations(earlier)
            done: dict[str, Any] = {"lsn": self._read_lsn, "txid": "", "operations": len(operations), "bytes": None, "is_equal": False}
            if not operations:
                return {**done, "state": "unchanged", "is_equal": not differs(self._fingerprint, self._target.fingerprint)}
            expected = ("expect-fingerprint", text_of(self._fingerprint))
            try:
                done["bytes"] = len(pack_operations([expected, *operations]))
            except TooLarge as error:
                raise TooLarge(f"what came after LSN {self._target.lsn} cannot be undone in one transaction: {error}; restore with the cluster stopped (--all)") from error
            if dry_run:
                return {**done, "state": "planned"}
            try:
                written = self._client.write([expected, *operations], ack="applied")
            except Rejected as error:
                if not isinstance(aborted(str(error)), Conflict):
                    raise
                exits.say(f"somebody wrote after LSN {self._read_lsn:,}: reading on")
                continue
            is_equal = not differs(self._fingerprint_at(written.lsn), self._target.fingerprint)
            return {**done, "state": "restored", "lsn": written.lsn, "txid": written.txid, "is_equal": is_equal}
        raise NotReady(f"somebody wrote each time, {ATTEMPTS} times: nothing was changed; have the writers pause, and say it again")

    def _fingerprint_at(self, lsn: Lsn) -> bytes:
        """Of the content at a line that is in the order already. Raises NotReady."""
        from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

        # A master has the result a moment after its worker told it, and another one may be asked than the one that was written to.
        asking = Retrying(retry=retry_if_result(lambda found: not found), stop=stop_after_delay(LINE_S), wait=wait_fixed(0.05))
        try:
            lines: list[LoggedRow] = asking(self._client.logged, lsn, lsn)
        except RetryError:
            raise NotReady(f"no master shows LSN {lsn} of its log for {LINE_S:g} s: say it again, which changes nothing twice") from None
        return lines[0][5]

    def _read_on(self) -> None:
        """Take note of what came since."""
        last = int(self._client.entries(0, 0)["last_lsn"])
        with progress("log", max(0, last - self._read_lsn), "line", 1) as meter:
            while self._read_lsn < last:
                lines = self._client.logged(self._read_lsn + 1, last)
                for line in lines:
                    self._undoing.take(line[4])
                if not lines:
                    raise NotReady(f"no line after LSN {self._read_lsn} was got, of {last}")
                self._read_lsn += len(lines)
                self._fingerprint = lines[-1][5]
                meter.advance(len(lines))

    @property
    def kept_tables(self) -> list[str]:
        """Tables of the cluster itself that changed since, and stay."""
        return sorted(self._undoing.kept_tables)


def restore_online(
    cluster: Cluster, backup: BackupDirectory, manifest: Manifest, target: Target, *, dry_run: bool
) -> Answer:
    """Carry it out. Raises InvalidRequest and StoreDamaged before anything is changed, and what `OnlineRestore.run` raises."""
    name, online = manifest.name, OnlineRestore(cluster.client, target)
    last = online.check()
    exits.say(f"LSN {target.lsn:,} of backup {name}, into the running cluster at LSN {last:,}: {last - target.lsn:,} lines are looked at")
    with TemporaryDirectory(prefix="brokerha-restore-") as folder, _earlier_copy(backup, manifest, target, Path(folder)) as earlier:
        done = online.run(earlier, dry_run=dry_run)
    done = {"backup": name, "to_lsn": target.lsn, **done, "kept_tables": online.kept_tables}
    return Answer(done, text=_told(done), code=exits.DONE)


def _told(done: dict[str, Any]) -> str:
    if done["state"] == "unchanged":
        return f"nothing to do: the content is that of LSN {done['to_lsn']:,} already"
    what = f"{done['operations']:,} operations, {size_text(done['bytes'])}"
    if done["state"] == "planned":
        return f"one transaction of {what} would lead back to LSN {done['to_lsn']:,}; nothing was changed"
    same = "the same content" if done["is_equal"] else "the same content but for ids of messages, or what is no content"
    return f"restored LSN {done['to_lsn']:,} as LSN {done['lsn']:,} (transaction {done['txid']}): {what}; {same}"
