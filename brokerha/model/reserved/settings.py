r"""Settings of a cluster at run time: rows of one reserved table, their limits, and whether they are live.

    key     name of the setting, as in the section ``[cluster]`` of the cluster file
    value   JSON {"at", "by", "from", "value"}: time (microseconds), user, source, and value; the value is text, as in the file
            without quotes, or null: the setting was taken back, and the file's value counts

They are content like any other key, so that the log, fingerprints, copies and backups include them. Only nodes write the rows
(`brokerha settings`, ``/cluster/settings``); every store checks them again at execution, by this table alone. Rules *between*
settings depend on the cluster files too, so the interface checks them (nodes/settings.py).

>>> problem_of(b"idle-round-ms", packed(Row("2000", "anna", 1, "127.0.0.1")))
''
>>> value_problem("idle-round-ms", "2s")
"idle-round-ms is a whole number of milliseconds, 1 to 600000, not '2s'"
>>> value_problem("max-peer-lag", "2")
"there is no setting 'max-peer-lag': did you mean max-peer-lag-s?"
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, Final, NamedTuple

from brokerha.model.errors import InvalidRequest

TABLE: Final = "urn:brokerha:settings"
TEXT_LIMIT_BYTES: Final = 200
"""Limit of each text in a row."""
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_NUMBER: Final = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,9})?\Z")
_FLAGS: Final = ("false", "true")
LIVE: Final = True
RESTART: Final = False


class Limits(NamedTuple):
    """The values of a setting, and when a change takes effect."""

    type: type
    """int, float, bool, or str with the words of `choices`."""
    unit: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    is_live: bool = LIVE
    """Whether a running node applies it; else it takes effect at the node's next start."""

    @property
    def words(self) -> str:
        """The values in words."""
        if self.type is bool:
            return "true or false"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = "a whole number" if self.type is int else "a number"
        least = f"{self.low:.15g}" if self.low is not None else ""
        bounds = f"{least} to {self.high:.15g}" if self.high is not None else f"at least {least}"
        return f"{kind} of {self.unit}, {bounds}"


_MS: Final = "milliseconds"
_TX: Final = "transactions"
SETTINGS: Final[dict[str, Limits]] = {
    # The log
    "tx-log-max-size": Limits(int, _TX, 1000),
    "tx-log-max-depth-h": Limits(float, "hours", 0.01),
    "tx-log-hard-limit": Limits(int, _TX, 0),
    # Agreement
    "max-peer-lag-s": Limits(float, "seconds", 0.1, 3600),
    "suspect-after-ms": Limits(int, _MS, 1, 3_600_000),
    "round-timeout-ms": Limits(int, _MS, 1, 600_000),
    "idle-round-ms": Limits(int, _MS, 1, 600_000),
    "post-gap-ms": Limits(int, _MS, 0, 10_000),
    "retransmit-ms": Limits(int, _MS, 1, 600_000),
    "fetch-after-ms": Limits(int, _MS, 1, 600_000),
    "post-window": Limits(int, _TX, 1, 100_000, is_live=RESTART),
    "queue-window": Limits(int, _TX, 1, 1_000_000),
    # Writes and transactions
    "accept-limit": Limits(int, _TX, 1, 10_000_000),
    "apply-limit": Limits(int, _TX, 1, 1_000_000_000),
    "tx-timeout-s": Limits(float, "seconds", 0.1, 3600),
    "tx-timeout-max-s": Limits(float, "seconds", 0.1, 86_400),
    "tx-open-limit": Limits(int, _TX, 1, 2000),
    "lost-backup": Limits(str, "", choices=("continue", "abort")),
    # Sites
    "min-in-sync": Limits(int, "workers", -1, 100),
    "heartbeat-ms": Limits(int, _MS, 1, 600_000),
    "dead-after-ms": Limits(int, _MS, 2, 600_000),
    "probe-turn": Limits(int, _TX, 1, 10_000_000),
    "protect-single-worker": Limits(bool, "", is_live=RESTART),
    "full-replication-factor": Limits(float, "times", 1, 1000),
    "min-replay-s": Limits(float, "seconds", 0, 86_400),
    "scrub-every-s": Limits(float, "seconds", 0, 31_536_000),
    "scrub-items-per-s": Limits(int, "items", 1, 100_000_000),
    "memory-limit-mb": Limits(int, "MiB", -1, 100_000_000),
    "store-patience-s": Limits(float, "seconds", 1, 86_400),
    # Reads
    "read-threads": Limits(int, "threads", 1, 256, is_live=RESTART),
    "read-queue": Limits(int, "reads", 1, 100_000),
    "read-limit-mb": Limits(int, "MiB", 1, 1024, is_live=RESTART),
    "read-stuck-limit": Limits(int, "reads", 0, 1024),
    "read-patience-ms": Limits(int, _MS, 10, 600_000),
    # Processes of a master
    "sync-timeout-ms": Limits(int, _MS, 10, 600_000, is_live=RESTART),
    "sync-lost": Limits(str, "", choices=("read-only", "idle"), is_live=RESTART),
    "fail-over": Limits(str, "", choices=("automatic", "manual"), is_live=RESTART),
    "fail-over-after-ms": Limits(int, _MS, 100, 600_000, is_live=RESTART),
    # Followers from outside
    "log-stream": Limits(bool, "", is_live=RESTART),
    "publish-changes": Limits(bool, "", is_live=RESTART),
}
"""Settings that can be changed while the cluster runs, in display order. The identity and addresses of nodes, their guarantees,
and access stay in the cluster file."""


class Row(NamedTuple):
    """The last row of a setting."""

    value: str | None
    """None: it was taken back."""
    by: str
    """User, if the interface knows one; else empty."""
    at_us: int
    """Time by the clock of the master that accepted it."""
    origin: str
    """Source: the address or interface of the client, and the master."""


def packed(row: Row) -> bytes:
    """Return the value of a row's key."""
    fields = {"at": row.at_us, "by": row.by, "from": row.origin, "value": row.value}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def row_in(value: bytes) -> Row:
    """Return the row of a value. Raises InvalidRequest for a malformed one."""
    try:
        fields: Any = json.loads(value)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or list(fields) != ["at", "by", "from", "value"]:
        raise InvalidRequest(f"a row of table {TABLE} is JSON with at, by, from and value")
    at_us, by, origin, text = fields.values()
    is_text = all(
        isinstance(each, str) and each.isprintable() and len(each.encode()) <= TEXT_LIMIT_BYTES
        for each in (by, origin, "" if text is None else text)
    )
    if type(at_us) is not int or not 0 <= at_us < 2**63 or not is_text:
        raise InvalidRequest(f"a row of table {TABLE} has a time, and texts of at most {TEXT_LIMIT_BYTES} bytes in one line")
    return Row(text, by, at_us, origin)


def problem_of(key: bytes, value: bytes | None) -> str:
    """Return the problem with a key of the table and its value (None: it is deleted), or an empty string."""
    if value is None:
        return f"a row of table {TABLE} is never deleted: taking a setting back is a row, too"
    try:
        row = row_in(value)
    except InvalidRequest as error:
        return str(error)
    name = key.decode(errors="backslashreplace")
    return name_problem(name) if row.value is None else value_problem(name, row.value)


def name_problem(name: str) -> str:
    """Return the problem with an unknown name of a setting, or an empty string."""
    if name in SETTINGS:
        return ""
    close = difflib.get_close_matches(name.lower().replace("_", "-")[:64], SETTINGS, n=1)
    hint = f"did you mean {close[0]}?" if close else "brokerha settings list shows all; the cluster file has the others"
    return f"there is no setting {name[:64]!r}: {hint}"


def value_problem(name: str, text: str) -> str:
    """Return the problem with a setting of this name and value, or an empty string."""
    if problem := name_problem(name):
        return problem
    limits = SETTINGS[name]
    if limits.choices or limits.type is bool:
        is_good = text in (limits.choices or _FLAGS)
    elif (_WHOLE if limits.type is int else _NUMBER).match(text) is None:
        is_good = False
    else:
        number = float(text)
        is_good = (limits.low is None or number >= limits.low) and (limits.high is None or number <= limits.high)
    return "" if is_good else f"{name} is {limits.words}, not {text[:40]!r}"


def value_of(name: str, text: str) -> int | float | bool | str:
    """Return the value of a valid text, in its type."""
    kind = SETTINGS[name].type
    if kind is bool:
        return text == "true"
    return text if kind is str else int(text) if kind is int else float(text)


def text_of(value: float | bool | str) -> str:
    """Return a value as text.

    >>> text_of(10.0), text_of(True), text_of(0.5)
    ('10', 'true', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
