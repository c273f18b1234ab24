"""``brokerha log pins``, ``pin``, ``unpin``: what of the log is held for somebody who is no part of the cluster, such as an archive.

Each master holds its own log, so a pin is set at all of them, or at the one of ``--master``. A master that refuses, because the
LSN is not held there any more or too many pins are set, does not keep the others from doing it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.masters import Masters, masters
from brokerha.cli.common.options import DEFAULT_TIMEOUT_S, ConfigOption, FormatOption, TimeoutOption, UrlOption
from brokerha.cli.common.output import Format
from brokerha.model.errors import InvalidRequest, NotReady, Unreachable

DEFAULT_FOR_S = 7 * 86_400
COLUMNS = {
    "name": "PIN",
    "master": "MASTER",
    "lsn": "LSN",
    "entries": "ENTRIES",
    "until": "UNTIL",
    "dropped": "DROPPED",
}

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the pin: letters, digits, '.', '_', '-'.")]
MasterOption = Annotated[str, typer.Option("--master", metavar="ID", help="Only this master; all without it.")]
Where = tuple[Path | None, str | None, float]


def pins(
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Show what of the log is held for whom.

    With -o json {"masters": [{master, first_lsn, last_lsn, hard_limit, split}], "pins": [{name, master, lsn, until, left_s, entries,
    dropped}], "silent": [master]}; until in microseconds; dropped: it holds more than tx-log-hard-limit, so nothing any more. split is
    null, or {lsn, entries, dropped, reason} while a split may lead this master back. Exit code 1 when a master does not answer.
    """
    answers, refused, silent = _everywhere("pins", "", (config, url, timeout_s), {})
    rows = [{"master": answer["master"], **row} for answer in answers.values() for row in answer["pins"]]
    sites = [{name: value for name, value in answer.items() if name != "pins"} for answer in answers.values()]
    _show({"masters": sites, "pins": rows, "silent": list(silent)}, rows, chosen)
    for site in sites:
        if split := site.get("split"):
            held = "is not held back to there any more" if split["dropped"] else "is held from there on"
            exits.say(f"{site['master']}: {split['reason']}: the log {held}")
    return _ended(refused, silent)


def pin(
    name: NameArgument,
    lsn: Annotated[int, typer.Option("--from", min=1, metavar="LSN", help="Lowest LSN that is still needed.")],
    for_s: Annotated[
        int, typer.Option("--for-s", min=1, metavar="SECONDS", help="How long, from now on; a week without it.")
    ] = DEFAULT_FOR_S,
    master: MasterOption = "",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Have the masters hold their logs from an LSN on; again with the same name to move the pin or to prolong it.

    It is remembered over restarts. A pin may make a log grow up to tx-log-hard-limit; then it is dropped. Exit code 2 when a
    master refuses.
    """
    arguments = {"name": name, "lsn": lsn, "for_s": for_s}
    answers, refused, silent = _everywhere("pin", master, (config, url, timeout_s), arguments)
    rows = [{"master": at, **answer} for at, answer in answers.items()]
    if rows or chosen is not Format.TABLE:
        _show({"pins": rows, "refused": refused, "silent": list(silent)}, rows, chosen)
    return _ended(refused, silent)


def unpin(
    name: NameArgument,
    master: MasterOption = "",
    config: ConfigOption = None,
    url: UrlOption = None,
    timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S,
    chosen: FormatOption = Format.TABLE,
) -> int:
    """Let the logs go that a pin holds. One that is not there is no error."""
    answers, refused, silent = _everywhere("unpin", master, (config, url, timeout_s), {"name": name})
    if chosen is Format.TABLE:
        for at, answer in answers.items():
            print(f"{at}: {name} is taken back" if answer["changed"] else f"{at}: there is no pin {name}")
    else:
        rows = [{"master": at, **answer} for at, answer in answers.items()]
        output.write({"pins": rows, "refused": refused, "silent": list(silent)}, rows, chosen, {})
    return _ended(refused, silent)


def _everywhere(
    command: str, master: str, where: Where, arguments: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, str]]:
    """What each master answers, why one refuses, and why one does not answer. Raises Unreachable when none answers."""
    answers: dict[str, dict[str, Any]] = {}
    refused: dict[str, str] = {}
    silent: dict[str, str] = {}
    with masters(*where) as cluster:
        for at in _asked(cluster, master):
            try:
                answers[at] = cluster.command(at, command, **arguments)
            except (InvalidRequest, NotReady) as error:
                refused[at] = str(error)
            except Unreachable as error:
                silent[at] = str(error)
    if silent and not answers and not refused:
        raise Unreachable("; ".join(silent.values()))
    return answers, refused, silent


def _asked(cluster: Masters, master: str) -> list[str]:
    if not master:
        return cluster.ids
    cluster.client(master)
    return [master]


def _show(whole: dict[str, Any], rows: list[dict[str, Any]], chosen: Format) -> None:
    if chosen is Format.TABLE:
        rows = [
            {**row, "until": output.time_text(row["until"]), "dropped": "yes" if row["dropped"] else ""} for row in rows
        ]
    output.write(whole, rows, chosen, COLUMNS)


def _ended(refused: dict[str, str], silent: dict[str, str]) -> int:
    for at, reason in (*refused.items(), *silent.items()):
        exits.say(f"{at}: {reason}")
    if refused:
        return exits.FAILED
    return exits.DEGRADED if silent else exits.DONE
