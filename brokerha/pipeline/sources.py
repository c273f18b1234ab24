"""Sources of log entries: a node, the log stream of a master, the journal of a stopped one, a backup, an archive.

    spec = SourceSpec(url="http://127.0.0.1:7201")             # picklable: sent to the tasks of Spark
    with open_source(spec) as source:
        for entry in source.read(source.first_lsn(), source.last_lsn()): ...

| spec | input | concurrent tasks |
|---|---|---|
| `url` | pages of ``GET /cluster/log?entries=1``; several addresses, separated by commas, replace each other | yes |
| `stream` and `master` | the stream in RabbitMQ, from the message that begins before the range | yes, a connection each |
| `journal` | the directory of a stopped master | yes, read-only |
| `backup` | the segments of a cluster backup, by its directory | yes |
| `archive` | the files of an archive (table.py), by its folder or URL | yes |

Invariant: `read` gives each LSN of its range once, in order, or raises: LinesMissing for entries that are not available (any more),
Unreachable without an answer in `timeout_s`. Entries that a master has not executed, or its backups do not hold, are not read yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from brokerha.client.http_nodes import SILENT_S, ask_everywhere
from brokerha.model.errors import ConfigurationError, InvalidRequest, TimedOut, Unreachable
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import ANYWHERE, Rewinds, read_rewinds, rewinds_of
from brokerha.model.operations import LoggedRow
from brokerha.pipeline.entries import UNKNOWN_EPOCH, UNKNOWN_ORIGIN, LogEntry
from brokerha.stores.backup.directory import BackupDirectory
from brokerha.stores.backup.lines import LinesMissing

if TYPE_CHECKING:
    import pyarrow as pa

    from brokerha.client import Client
    from brokerha.log.log import Log
    from brokerha.transports.log_stream.reader import LogReader

DEFAULT_TIMEOUT_S: Final = 30.0
PAGE_ENTRIES: Final = 5_000
BEHIND_S: Final = 0.2
"""Pause between two questions for entries that another node of the list already had."""
_NAMES: Final = ("url", "stream", "master", "journal", "backup", "archive")
_TIMEOUT: Final = "timeout"
OPTIONS: Final = (*_NAMES, _TIMEOUT)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Identification of a log: exactly one of `url`, `stream`, `journal`, `backup` and `archive`. Raises ConfigurationError."""

    url: str = ""
    """``http://host:port`` of a master, or several with commas; an address for `brokerha.connect`."""
    stream: str = ""
    """``amqp://`` address of the broker of `master`."""
    master: NodeId = ""
    """Master of the stream."""
    journal: str = ""
    """Directory."""
    backup: str = ""
    """Directory."""
    archive: str = ""
    """Folder, or URL (places.py)."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Timeout of one question."""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.url, self.stream, self.journal, self.backup, self.archive))) != 1:
            raise ConfigurationError(
                "which log? write one of url (http://host:port of a node), stream (amqp://… with master), journal (a directory), "
                "backup (a directory) and archive (a folder or URL)"
            )
        if bool(self.stream) != bool(self.master):
            raise ConfigurationError("a stream is that of one master: write stream (amqp://…) and master (its node id)")
        if not self.timeout_s > 0:
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {self.timeout_s:g}")

    @property
    def kind(self) -> str:
        """``http``, ``stream``, ``journal``, ``backup`` or ``archive``."""
        named = ("stream", "journal", "backup", "archive")
        return "http" if self.url else next(each for each in named if getattr(self, each))

    @property
    def name(self) -> str:
        """Name for people."""
        if self.stream:
            return f"the log stream of {self.master}"
        if self.url:
            return f"the log at {self.url}"
        return f"the {self.kind} in {getattr(self, self.kind)}"

    def options(self) -> dict[str, str]:
        """Return it as options of the data source; the inverse of `from_options`."""
        told = {name: str(getattr(self, name)) for name in _NAMES if getattr(self, name)}
        return told if self.timeout_s == DEFAULT_TIMEOUT_S else {**told, _TIMEOUT: repr(self.timeout_s)}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Parse options, with names in any case; other options are ignored. Raises ConfigurationError."""
        lower = {name.lower(): value for name, value in options.items()}
        try:
            timeout_s = float(lower.get(_TIMEOUT, DEFAULT_TIMEOUT_S))
        except ValueError:
            raise ConfigurationError(f"timeout is a number of seconds, not {lower[_TIMEOUT]!r}") from None
        return cls(**{name: lower.get(name, "") for name in _NAMES}, timeout_s=timeout_s)


class OpenSource:
    """Entries of one cluster's log, for a ``with`` block; from `open_source`. Only its `spec` travels between processes."""

    cluster = ""
    """Empty when the source does not know it."""

    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and files. Idempotent."""
        self._closing.close()

    def first_lsn(self) -> Lsn:
        """Return the lowest LSN that can be read now; one more than the last when there is none."""
        return self.range()[0]

    def last_lsn(self) -> Lsn:
        """Return the highest LSN with a result that can be read now; one less than the first when there is none."""
        return self.range()[1]

    def range(self) -> tuple[Lsn, Lsn]:
        """Return the first and the last LSN, by one question."""
        raise NotImplementedError

    def rewinds(self) -> Rewinds:
        """Return the points at which the log went back after splits (model/log_lineages.py)."""
        raise NotImplementedError

    def read(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        """Yield the entries of a range, both ends included, in order and without a gap. Raises LinesMissing, Unreachable."""
        following = first_lsn
        for entry in self._entries(first_lsn, last_lsn):
            if entry.lsn != following:
                raise self._missing(following)
            following += 1
            yield entry
        if following <= last_lsn:
            raise self._missing(following)

    def batches(
        self, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str], stores: frozenset[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range (rows.py), in order; with ``stores`` only those of changes to these. Raises as `read`."""
        from brokerha.pipeline.rows import batches_of

        return batches_of(self.read(first_lsn, last_lsn), columns=columns, stores=stores)

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        """Yield the available entries of a range, in order."""
        raise NotImplementedError

    def _missing(self, lsn: Lsn) -> LinesMissing:
        first_lsn, last_lsn = self.range()
        if lsn < first_lsn:
            return LinesMissing(f"{self.spec.name} does not have LSN {lsn} (any more): the first one is {first_lsn}")
        if lsn > last_lsn:
            return LinesMissing(f"{self.spec.name} ends with LSN {last_lsn}, before {lsn}")
        return LinesMissing(f"{self.spec.name} has a gap at LSN {lsn}")


def open_source(spec: SourceSpec) -> OpenSource:
    """Open the log of a spec. Raises Unreachable, NotFound, JournalError and its kinds, StoreError and its kinds."""
    if spec.url:
        return NodeSource(spec)
    if spec.stream:
        return StreamSource(spec)
    if spec.archive:
        return ArchiveSource(spec)
    return JournalSource(spec) if spec.journal else BackupSource(spec)


class NodeSource(OpenSource):
    """A running master, or any of several."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        from brokerha import connect

        self._client: Client = self._closing.enter_context(connect(spec.url, timeout=spec.timeout_s))
        try:
            self.cluster = str(self._asked(0, 0)["cluster"])
        except BaseException:
            self.close()
            raise

    def range(self) -> tuple[Lsn, Lsn]:
        """See the base."""
        answer = self._asked(0, 0)
        return int(answer["first_lsn"]), int(answer["last_lsn"])

    def rewinds(self) -> Rewinds:
        """See the base."""
        return read_rewinds(self._asked(0, 0).get("rewinds"))

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        following = first_lsn
        while following <= last_lsn:
            answer = self._page(following, min(following + PAGE_ENTRIES - 1, last_lsn))
            if not answer:
                return
            for row in answer:
                yield LogEntry._make(row)
            following += len(answer)

    def _page(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Any]:
        """Return some entries, or none after the timeout. One of several masters can lag behind another one's answer."""
        deadline_s = time.monotonic() + self.spec.timeout_s
        behind = threading.Event()
        while True:
            try:
                answer = self._asked(first_lsn, last_lsn)
            except InvalidRequest as error:
                raise LinesMissing(f"{self.spec.name}: {error}") from None
            if answer["entries"] or time.monotonic() > deadline_s or "," not in self.spec.url:
                return list(answer["entries"])
            behind.wait(BEHIND_S)

    def _asked(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        try:
            return self._client.entries(first_lsn, last_lsn)
        except TimedOut as error:
            # A node that accepts the question and stays silent is as unreachable as a stopped one.
            raise Unreachable(str(error)) from None


class JournalSource(OpenSource):
    """The journal of a stopped master."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        from brokerha.log.log import open_log

        self._journal: Log = self._closing.enter_context(open_log(Path(spec.journal)))
        self.cluster = self._journal.cluster

    def range(self) -> tuple[Lsn, Lsn]:
        """See the base."""
        from brokerha.nodes.master.journal_lines import held_from

        return held_from(self._journal), self._journal.executed_lsn

    def rewinds(self) -> Rewinds:
        """See the base."""
        return rewinds_of(self._journal.splits())

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        from brokerha.nodes.master.journal_lines import entry_rows

        following = max(first_lsn, self.first_lsn())
        while following <= last_lsn:
            rows = entry_rows(self._journal, following, last_lsn)
            if not rows:
                return
            for row in rows:
                yield LogEntry._make(row)
            following += len(rows)


class StreamSource(OpenSource):
    """The log stream of a master, up to its end at the time of opening."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        from brokerha.transports.log_stream.reader import LogReader

        self._reader: LogReader = self._closing.enter_context(LogReader(spec.stream, spec.master))
        self.cluster = self._reader.cluster

    def range(self) -> tuple[Lsn, Lsn]:
        """See the base."""
        return self._reader.first_lsn, self._reader.last_lsn

    def rewinds(self) -> Rewinds:
        """See the base."""
        return self._reader.rewinds

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        for lsn, txid, origin, timestamp, outcome, reason, effect, fingerprint, epoch in self._reader.rows(first_lsn, last_lsn):
            yield LogEntry(lsn, txid, origin, timestamp, epoch, outcome, reason, effect, fingerprint)


class BackupSource(OpenSource):
    """Log lines of a cluster backup: those before its copy, if it has them, and those after it."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        self._backup = BackupDirectory(Path(spec.backup))
        self._manifest = self._backup.manifest()
        self.cluster = self._manifest.cluster

    def range(self) -> tuple[Lsn, Lsn]:
        """See the base."""
        return self._manifest.log_first_lsn, self._manifest.last_lsn

    def rewinds(self) -> Rewinds:
        """See the base; a backup knows the lineage at its end, but not the LSN where it began."""
        return ((self._manifest.lineage, ANYWHERE),) if self._manifest.lineage else ()

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        return map(entry_of_line, self._backup.lines(self._manifest, first_lsn, last_lsn))


class ArchiveSource(OpenSource):
    """An archive at the time of opening; its rows are returned directly, without becoming entries in between."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        from brokerha.pipeline.places import place
        from brokerha.pipeline.table import LogTable

        self._table = LogTable(place(spec.archive))
        self._state = self._table.state()
        self.cluster = self._state.head.cluster

    def range(self) -> tuple[Lsn, Lsn]:
        """See the base."""
        return self._state.head.first_lsn, self._state.head.last_lsn

    def rewinds(self) -> Rewinds:
        """See the base; an archive knows the lineage at its end, but not the LSN where it began."""
        return ((self._state.head.lineage, ANYWHERE),) if self._state.head.lineage else ()

    def _entries(self, first_lsn: Lsn, last_lsn: Lsn) -> Iterator[LogEntry]:
        from brokerha.pipeline.rows import SCHEMA, entries_in

        return entries_in(self.batches(first_lsn, last_lsn, SCHEMA.names, None))

    def batches(
        self, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str], stores: frozenset[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """See the base."""
        yield from self._table.batches(self._state, first_lsn, last_lsn, columns, stores)


def entry_of_line(line: tuple[Lsn, LoggedRow]) -> LogEntry:
    """Return an entry of a source that does not know origins and epochs."""
    lsn, (txid, timestamp, outcome, reason, effect, fingerprint) = line
    return LogEntry(lsn, txid, UNKNOWN_ORIGIN, timestamp, UNKNOWN_EPOCH, outcome, reason, effect, fingerprint)


class SourceCluster:
    """The nodes of a source: their status, and the pins that keep their logs.

    Each master keeps and trims its own log, and the next run can read any of them, so a pin is set at every address. One success is
    enough: masters that are away now have the pin of the last run. A standby process takes no pin; its primary does. Timeouts are
    short, because going on matters more than these answers.
    """

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients

    def pin(self, name: str, lsn: Lsn, for_s: int) -> object:
        """Keep entries from an LSN on for ``for_s`` seconds. Raises the error of the last node when all fail."""
        return ask_everywhere(list(self._clients), lambda url: self._clients[url].pin(name, lsn, for_s))

    def status(self) -> dict[str, Any]:
        """Return the first answer about all nodes. Raises Unreachable, NotReady."""
        answers = ask_everywhere(list(self._clients), lambda url: self._clients[url].status())
        return next(iter(answers.values()))


@contextmanager
def cluster_of(spec: SourceSpec) -> Iterator[SourceCluster | None]:
    """Yield the nodes of a source; None for a source without nodes."""
    if not spec.url:
        yield None
        return
    from brokerha import connect

    with ExitStack() as stack:
        urls = [url for each in spec.url.split(",") if (url := each.strip())]
        timeout_s = min(SILENT_S, spec.timeout_s)
        yield SourceCluster({url: stack.enter_context(connect(url, timeout=timeout_s)) for url in urls})
