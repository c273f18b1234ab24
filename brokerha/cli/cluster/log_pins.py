"""``brokerha log pins``, ``pin``, ``unpin``: what of the log is held for somebody who is no part of the cluster, such as an archive.

Each master holds its own log, so a pin is set at all of them, or at the one of ``--master``. A master that refuses, because the
LSN is not held there any more or too many pins are set, does not keep the others from doing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.cluster import Cluster, Row
from brokerha.cli.common.command import Answer
from brokerha.cli.common.output import columns
from brokerha.model.errors import InvalidRequest, NotReady, Unreachable

DEFAULT_FOR_S = 7 * 86_400
COLUMNS = columns("name=PIN", "master", "lsn", "entries", "until", "dropped")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pin: letters, digits, '.', '_', '-'.")]
MasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="Only this master; all without it.")]


def pins(cluster: Cluster) -> Answer:
    """Show what of the log is held for whom.

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
        {"masters": sites, "pins": rows, "silent": list(told.silent)}, rows, COLUMNS, _shown(rows),
        remarks=[*remarks, *told.remarks], code=told.code,
    )  # fmt: skip


def pin(
    cluster: Cluster,
    name: NameArgument,
    lsn: Annotated[int, typer.Option("--from", min=1, metavar="LSN", help="Lowest LSN that is still needed.")],
    for_s: Annotated[
        int, typer.Option("--for-s", min=1, metavar="SECONDS", help="How long, from now on; a week without it.")
    ] = DEFAULT_FOR_S,
    master: MasterOption = "",
) -> Answer:
    """Have the masters hold their logs from an LSN on; again with the same name to move the pin or to prolong it.

    It is remembered over restarts. A pin can make a log grow up to tx-log-hard-limit; then it is dropped. Exit code 2 when a
    master refuses.
    """
    told = _everywhere(cluster, "pin", master, name=name, lsn=lsn, for_s=for_s)
    return _changed(told, _shown(told.rows), None if told.rows else "")


def unpin(cluster: Cluster, name: NameArgument, master: MasterOption = "") -> Answer:
    """Let the logs go that a pin holds. One that is not there is no error."""
    told = _everywhere(cluster, "unpin", master, name=name)
    lines = [
        f"{row['master']}: {name} is taken back" if row["changed"] else f"{row['master']}: there is no pin {name}"
        for row in told.rows
    ]
    return _changed(told, None, "\n".join(lines))


class _Told(NamedTuple):
    """What the masters say to a command."""

    answers: dict[str, Row]
    refused: dict[str, str]
    """Why one refuses."""
    silent: dict[str, str]
    """Why one does not answer."""

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
    """Have all masters carry out a command, or the one that is named. Raises Unreachable when none answers."""
    told = _Told({}, {}, {})
    if master:
        cluster.at(master)
    for at in [master] if master else cluster.masters:
        try:
            told.answers[at] = cluster.command(at, command, **arguments)
        except (InvalidRequest, NotReady) as error:
            told.refused[at] = str(error)
        except Unreachable as error:
            told.silent[at] = str(error)
    if told.silent and not told.answers and not told.refused:
        raise Unreachable("; ".join(told.silent.values()))
    return told


def _changed(told: _Told, shown: Sequence[Row] | None, text: str | None) -> Answer:
    data = {"pins": told.rows, "refused": told.refused, "silent": list(told.silent)}
    return Answer(data, told.rows, COLUMNS, shown, text, told.remarks, told.code)


def _shown(rows: Sequence[Row]) -> list[Row]:
    return [
        {**row, "until": output.time_text(row["until"]), "dropped": "yes" if row["dropped"] else ""} for row in rows
    ]
