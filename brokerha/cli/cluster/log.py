"""``brokerha log``: the synchronised queue, as every master holds it.

show, tail          lines of a range, or new lines as they come, with a note when the log goes back after a split
verify              a journal on this machine, record by record (its node is stopped), or the logs of all masters, line by line
pins, pin, unpin    lines that are kept for readers outside the cluster
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import SURVEY_S, Answer, Cluster, FormatOption, Group, Row, cluster_file, columns
from brokerha.cli.common.output import Format
from brokerha.cli.common.terminal import progress
from brokerha.model import log_lineages
from brokerha.model.errors import InvalidRequest, NotAllowed, NotReady, TimedOut, Unreachable, WentBack
from brokerha.model.operations import Accept, By, Change, Cleared, Delete, Published, Put, QuadsChanged, Staged, unpack_effect

if TYPE_CHECKING:
    from pathlib import Path

    from brokerha.client import Client

POLL_S = 20.0
"""How long one question of ``tail`` waits for a new line."""
COLUMNS = columns("lsn", "txid", "origin", "timestamp=TIME", "user", "kind", "operations", "outcome", "effect_digest=EFFECT")
CHANGE_COLUMNS = columns("lsn", "txid", "timestamp=TIME", "user", "outcome", "changes")
CHANGES_SHOWN = 4
"""Changes of a line in a table; other forms have all."""
AGREED = ("txid", "timestamp", "origin")
"""Fields that the masters agree on before they add a line."""
RESULTS = ("outcome", "effect_digest")
"""Fields that each site computes itself, and that must be equal once they are known."""

ChangesOption = Annotated[bool, typer.Option("--changes", help="Also show what each line has changed, without values.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="NAME", help="Only what changed this repository, table or queue; implies --changes."),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only what changed this key of the table --store; implies --changes.")
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only what this user wrote.")]

app = Group("The synchronised queue: show, tail, verify, pins, pin, unpin.")


@app.command()
def show(
    cluster: Cluster,
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="LSN", help="First line; the first one that is held without it.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", min=1, metavar="LSN", help="Last line; the newest without it.")] = None,
    user: UserOption = None,
    changes: ChangesOption = False,
    store: StoreOption = None,
    key: KeyOption = None,
    chosen: FormatOption = Format.TABLE,
) -> None:
    """Show lines of the log: with -o json one object a line.

    Fields: lsn, txid, origin, timestamp (microseconds), epoch, lineage (0 until the log goes back after a split), user (who wrote it; null where the door did
    not know), kind, outcome, reason, operations, effect_digest; with --changes also changes, null until they are known.
    """
    write, place = _Writer(cluster, chosen, user, _Wanted.of(changes, store, key)), _Place(cluster)
    for lines in chunks(cluster, first or 1, last):
        if first is not None:
            _say_what_is_gone(first, lines)
            first = None
        if place.is_behind(lines) and (void := place.void(lines[0]["lsn"])):
            raise WentBack(void)
        write(lines)


@app.command()
def tail(
    cluster: Cluster,
    first: Annotated[int | None, typer.Option("--from", min=1, metavar="LSN", help="First line; only new ones without it.")] = None,
    user: UserOption = None,
    changes: ChangesOption = False,
    store: StoreOption = None,
    key: KeyOption = None,
    chosen: FormatOption = Format.TABLE,
) -> None:
    """Show lines of the log as they come, until Ctrl-C."""
    write, place = _Writer(cluster, chosen, user, _Wanted.of(changes, store, key)), _Place(cluster)
    following = first if first is not None else newest(cluster.client.status()) + 1
    with suppress(KeyboardInterrupt):
        while True:
            if void := place.void(following):
                exits.say(void)
                following = place.following
            for lines in chunks(cluster, following, None):
                _say_what_is_gone(following, lines)
                if place.is_behind(lines):
                    break
                write(lines)
                sys.stdout.flush()
                following = lines[-1]["lsn"] + 1
            else:
                with suppress(TimedOut):
                    cluster.client.wait(following, timeout=POLL_S)


def _say_what_is_gone(asked: int, lines: Sequence[Mapping[str, Any]]) -> None:
    """Say which of the requested lines are not held any more."""
    if asked < lines[0]["lsn"]:
        exits.say(f"LSN {asked:,} to {lines[0]['lsn'] - 1:,} are not held any more")


def newest(answer: Mapping[str, Any]) -> int:
    """Return the highest LSN that a master holds."""
    return max((node["received_lsn"] or 0 for node in answer["nodes"] if node["role"] == "master"), default=0)


def chunks(cluster: Cluster, first: int, last: int | None) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of a range in chunks, until there are no more."""
    following = first
    while last is None or following <= last:
        lines = cluster.client.log(following, last or 0)
        if not lines:
            return
        yield lines
        following = lines[-1]["lsn"] + 1


class _Place:
    """The lineage of the log that is being read."""

    def __init__(self, cluster: Cluster) -> None:
        self.following = 0
        """LSN at which to continue after the log went back."""
        self._cluster = cluster
        self._lineage = log_lineages.newest(self._rewinds())

    def is_behind(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether a line is of a later lineage."""
        return any(line.get("lineage", 0) > self._lineage for line in lines)

    def void(self, following: int) -> str:
        """Read how the log has gone back by now; return what to tell a reader whose next LSN is ``following``."""
        rewinds = self._rewinds()
        void = log_lineages.problem(rewinds, self._lineage, following - 1)
        if void:
            self.following = (log_lineages.agreed(rewinds, self._lineage) or 0) + 1
        self._lineage = log_lineages.newest(rewinds)
        return void

    def _rewinds(self) -> log_lineages.Rewinds:
        found = self._cluster.client.entries(0, 0, timeout=self._cluster.timeout_s)
        return log_lineages.read_rewinds(found.get("rewinds"))


class _Wanted(NamedTuple):
    """Changes to show: of all stores, of one, or of one key of a table."""

    store: str | None
    key: bytes | None

    @classmethod
    def of(cls, changes: bool, store: str | None, key: str | None) -> _Wanted | None:
        """Return None if none are to be shown. Raises typer.BadParameter."""
        if key is not None and store is None:
            raise typer.BadParameter("write --store TABLE with --key")
        return cls(store, None if key is None else key.encode()) if changes or store is not None else None

    def includes(self, change: Change) -> bool:
        """Tell whether this change is one of them."""
        if isinstance(change, Staged):
            return self.key is None and (self.store is None or self.store in [name for _, name, *_ in change.stores])
        return (self.store is None or change[1] == self.store) and (self.key is None or change[2:3] == (self.key,))


def _row(change: Change) -> dict[str, Any]:
    """Return a change without its content: kind, name of the store, and the key, the message, or the number of quads."""
    from brokerha.http.data.keys import field

    row: dict[str, Any] = {"kind": change[0], "name": change[1]}
    match change:
        case Put() | Delete():
            return row | field("key", change.key)
        case QuadsChanged():
            return row | {"added": len(change.added), "removed": len(change.removed)}
        case Cleared():
            return row | {"removed": change.quads}
        case Published() | Accept():
            return row | {"id": change.message_id}
        case Staged():
            return {"kind": "staged", "name": ", ".join(name for _, name, *_ in change.stores)}
    return row


def _text(line: Mapping[str, Any]) -> str:
    """Return the changes of a line for people; the reason of one that was rejected."""
    if line["reason"]:
        return str(line["reason"])
    texts = [
        " ".join(f"{name} {item}" if name in {"added", "removed"} else str(item) for name, item in row.items())
        for row in line["changes"] or ()
    ]
    return "; ".join(texts[:CHANGES_SHOWN]) + (f"; and {len(texts) - CHANGES_SHOWN} more" if len(texts) > CHANGES_SHOWN else "")


class _Writer:
    """Writes chunks of lines, of one user or all; the heading only before the first."""

    def __init__(self, cluster: Cluster, chosen: Format, user: str | None, wanted: _Wanted | None) -> None:
        self._cluster = cluster
        self._chosen = chosen
        self._user = user
        self._wanted = wanted
        self._is_first = True

    def _with_changes(self, lines: Sequence[Mapping[str, Any]], wanted: _Wanted) -> list[Mapping[str, Any]]:
        """Return the lines with wanted changes; without a wanted store all lines."""
        changes: dict[int, list[Change]] = {}
        following, last = lines[0]["lsn"], lines[-1]["lsn"]
        # The lines whose results are not known yet have none.
        while following <= last and (found := self._cluster.client.logged(following, last)):
            changes.update((lsn, unpack_effect(row[4])) for lsn, row in enumerate(found, following))
            following += len(found)
        shown: list[Mapping[str, Any]] = []
        for line in lines:
            known = changes.get(line["lsn"])
            rows = (
                None
                if known is None
                else [_row(change) for change in known if not isinstance(change, By) and wanted.includes(change)]
            )
            if rows or wanted.store is None:
                shown.append({**line, "changes": rows})
        return shown

    def __call__(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self._user is not None:
            lines = [line for line in lines if line["user"] == self._user]
        if self._wanted is not None and lines:
            lines = self._with_changes(lines, self._wanted)
        if not lines:
            return
        if self._chosen is Format.JSON:
            for line in lines:
                print(json.dumps(line, ensure_ascii=False))
        elif self._chosen is Format.YAML:
            print(output.yaml_text(list(lines)))
        elif self._chosen is Format.TSV:
            output.write_tsv(lines, with_head=self._is_first)
        else:
            rows = [{**line, "timestamp": output.time_text(line["timestamp"])} for line in lines]
            if self._wanted is not None:
                rows = [{**row, "changes": _text(row)} for row in rows]
            shown = COLUMNS if self._wanted is None else CHANGE_COLUMNS
            output.console().print(output.table(rows, shown, with_head=self._is_first))
        self._is_first = False


@app.command()
def verify(
    cluster: Cluster,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="ID", help="Read the journal of this master or backup on this machine; it must be stopped."),
    ] = None,
) -> Answer:
    """Verify the log: with --node every record of one journal, without it the lines of all masters against each other.

    Exit code 2 when anything is wrong; nothing is changed.
    """
    if node is not None:
        return _verify_journal(cluster.config, node)
    return _compare_masters(cluster)


def _verify_journal(config: Path | None, node: str) -> Answer:
    cluster = cluster_file(config)
    directory = cluster.data_directory(node)
    if cluster.node(node).role == "worker":
        raise typer.BadParameter(
            f"{node} is no master: only masters and backups keep a journal, so write --node {cluster.masters[0].id}"
        )
    if not directory.is_dir():
        raise typer.BadParameter(f"there is no journal in {directory}: is this the machine of {node}?")
    from brokerha.log.log import open_log

    with open_log(directory, cluster.name, cluster.master_of(node)) as journal:
        problems = [str(problem) for problem in journal.verify()]
        lsn = journal.state().lsn
    told = output.counted(len(problems), "problem") if problems else "no problem"
    return Answer(
        {"nodes": [node], "lsn": lsn, "problems": problems, "difference": None, "silent": []},
        text="\n".join(problems),
        remarks=[f"the journal of {node} holds the log up to LSN {lsn:,}: {told}"],
        code=exits.FAILED if problems else exits.DONE,
    )


def _compare_masters(cluster: Cluster) -> Answer:
    """Compare logs line by line, up to the shortest of the masters that answer."""
    if not cluster.masters_of_file and len(cluster.masters) == 1:
        raise typer.BadParameter("to compare the logs of all masters, write -c FILE instead of --url")
    silent: dict[str, str] = {}
    clients: dict[str, Client] = {}
    ends: list[int] = []
    for name in cluster.masters:
        try:
            ends.append(_end_of(cluster.at(name), name, min(SURVEY_S, cluster.timeout_s)))
            clients[name] = cluster.at(name)
        except (Unreachable, TimedOut) as error:
            silent[name] = str(error)
    if not clients:
        raise Unreachable("; ".join(f"{name}: {reason}" for name, reason in silent.items()))
    difference = _first_difference(clients, min(ends))
    data = {"nodes": list(clients), "lsn": min(ends), "problems": [], "difference": difference, "silent": list(silent)}
    remarks = [f"{name} was not compared: {reason}" for name, reason in silent.items()]
    if difference is None:
        remarks.append(f"the logs of {', '.join(clients)} are equal up to LSN {min(ends):,}")
        return Answer(data, text="", remarks=remarks, code=exits.DEGRADED if silent else exits.DONE)
    if len({line["epoch"] for line in difference.values() if isinstance(line, dict)}) > 1:
        remarks.append(
            f"the logs part at LSN {difference['lsn']}, in different epochs: these masters are apart or were a moment ago; verify again when "
            "brokerha status shows all of them in one epoch"
        )
    else:
        remarks.append(f"the logs differ at LSN {difference['lsn']}: stop writing, keep the data directories, and ask for help")
    return Answer(data, text=json.dumps(difference, ensure_ascii=False), remarks=remarks, code=exits.FAILED)


def _end_of(client: Client, master: str, timeout_s: float) -> int:
    """Return the length of a master's log, from its own status."""
    nodes = client.status(timeout=timeout_s)["nodes"]
    return next((node["received_lsn"] or 0 for node in nodes if node["id"] == master), 0)


def _first_difference(clients: Mapping[str, Client], last: int) -> dict[str, Any] | None:
    """Return the first LSN at which two masters hold different lines, with both lines; None without one."""
    with progress("lines", last, "lines") as meter:
        following = 1
        while following <= last:
            # Each page begins with the first line that is held; lines beyond the shortest page are compared with the next one.
            logs = {name: client.log(following, 0) for name, client in clients.items()}
            if (found := differing(logs)) is not None:
                return found
            end = min((lines[-1]["lsn"] for lines in logs.values() if lines), default=last)
            meter.advance(end - following + 1)
            following = end + 1
    return None


def differing(logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Return the first line that differs between the logs; lines that a log no longer holds are not compared."""
    known: dict[int, tuple[str, Mapping[str, Any]]] = {}
    found: list[dict[str, Any]] = []
    for name, lines in logs.items():
        for line in lines:
            other, wanted = known.setdefault(line["lsn"], (name, line))
            if not _is_same(line, wanted):
                found.append({"lsn": line["lsn"], other: wanted, name: line})
                break
    return min(found, key=lambda difference: difference["lsn"], default=None)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    is_agreed = all(one[field] == other[field] for field in AGREED)
    return is_agreed and all(one[field] == other[field] or None in {one[field], other[field]} for field in RESULTS)


# ---- pins: lines that are kept for readers outside the cluster, such as an archive
#
# Each master holds its own log, so a pin is set at all of them, or at that of ``--master``. A master refuses when it does not
# hold the LSN any more or has too many pins; the others set the pin nevertheless.

DEFAULT_FOR_S = 7 * 86_400
PIN_COLUMNS = columns("name=PIN", "master", "lsn", "entries", "until", "dropped")

PinArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pin: letters, digits, '.', '_', '-'.")]
MasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="Only this master; all without it.")]


@app.command()
def pins(cluster: Cluster) -> Answer:
    """Show the pins: which part of the log is kept, and for whom.

    With -o json {"masters": [{master, first_lsn, last_lsn, hard_limit, split}], "pins": [{name, master, lsn, until, left_s, entries,
    dropped}], "silent": [master]}; until in microseconds; dropped: it holds more than tx-log-hard-limit, so nothing any more. split is
    null, or {lsn, entries, dropped, reason} while a split may lead this master back. Exit code 1 when a master does not answer.
    """
    told = _everywhere(cluster, "pins", "")
    rows = [{"master": answer["master"], **row} for answer in told.answers.values() for row in answer["pins"]]
    sites = [{name: value for name, value in answer.items() if name != "pins"} for answer in told.answers.values()]
    remarks = []
    for site in sites:
        if split := site.get("split"):
            held = "is not held back to there any more" if split["dropped"] else "is held from there on"
            remarks.append(f"{site['master']}: {split['reason']}: the log {held}")
    return Answer(
        {"masters": sites, "pins": rows, "silent": list(told.silent)}, rows, PIN_COLUMNS, _shown(rows),
        remarks=[*remarks, *told.remarks], code=told.code,
    )  # fmt: skip


@app.command()
def pin(
    cluster: Cluster,
    name: PinArgument,
    lsn: Annotated[int, typer.Option("--from", min=1, metavar="LSN", help="Lowest LSN that is still needed.")],
    for_s: Annotated[
        int, typer.Option("--for-s", min=1, metavar="SECONDS", help="How long, from now on; a week without it.")
    ] = DEFAULT_FOR_S,
    master: MasterOption = "",
) -> Answer:
    """Pin the logs of the masters from an LSN on; pin again with the same name to move or prolong it.

    It is remembered over restarts. A pin can make a log grow up to tx-log-hard-limit; then it is dropped. Exit code 2 when a
    master refuses.
    """
    told = _everywhere(cluster, "pin", master, name=name, lsn=lsn, for_s=for_s)
    return _changed(told, _shown(told.rows), None if told.rows else "")


@app.command()
def unpin(cluster: Cluster, name: PinArgument, master: MasterOption = "") -> Answer:
    """Release a pin of the logs. A missing pin is no error."""
    told = _everywhere(cluster, "unpin", master, name=name)
    lines = [
        f"{row['master']}: {name} is taken back" if row["changed"] else f"{row['master']}: there is no pin {name}"
        for row in told.rows
    ]
    return _changed(told, None, "\n".join(lines))


class _Told(NamedTuple):
    """Answers of the masters to a command."""

    answers: dict[str, Row]
    refused: dict[str, str]
    """Why a master refuses."""
    silent: dict[str, str]
    """Why a master does not answer."""

    @property
    def rows(self) -> list[Row]:
        return [{"master": at, **answer} for at, answer in self.answers.items()]

    @property
    def remarks(self) -> list[str]:
        return [f"{at}: {reason}" for at, reason in (*self.refused.items(), *self.silent.items())]

    @property
    def code(self) -> int:
        return exits.FAILED if self.refused else exits.DEGRADED if self.silent else exits.DONE


def _everywhere(cluster: Cluster, command: str, master: str, **arguments: Any) -> _Told:
    """Run a command at all masters, or at the named one. Raises Unreachable when none answers."""
    told = _Told({}, {}, {})
    if master:
        cluster.at(master)
    for at in [master] if master else cluster.masters:
        try:
            told.answers[at] = (cluster.command if master else cluster.ask)(at, command, **arguments)
        except (Unreachable, TimedOut) as error:
            told.silent[at] = str(error)
        except NotAllowed:
            raise
        except (InvalidRequest, NotReady) as error:
            told.refused[at] = str(error)
    if told.silent and not told.answers and not told.refused:
        raise Unreachable("; ".join(told.silent.values()))
    return told


def _changed(told: _Told, shown: Sequence[Row] | None, text: str | None) -> Answer:
    data = {"pins": told.rows, "refused": told.refused, "silent": list(told.silent)}
    return Answer(data, told.rows, PIN_COLUMNS, shown, text, told.remarks, told.code)


def _shown(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "until": output.time_text(row["until"]), "dropped": "yes" if row["dropped"] else ""} for row in rows]
