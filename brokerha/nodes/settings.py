"""Run-time settings at one node: the known rows, the values in force, the values that wait for its next start.

    a copy of the data ── rows ──> learn ── live ones ──> the configurations that the parts of the node hold, changed in place
                                     └──> settings.json in the node's folder: known at the next start, before any node can be asked

A node learns the rows from a copy that has applied them: a worker from its own copy, a master from a worker of its site, or else
from another master (master/settings.py). Only `learn` changes the configurations that parts of a node hold: in the loop's thread,
between two turns, so that each turn sees one state.

The file gives the initial values, and the values to return to when a setting is unset.

Must never: apply rows that contradict the rest of this node's cluster file. The former values stay, and `problem` has the reason.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.reserved.settings import SETTINGS, Row, packed, problem_of, row_in, text_of, value_of
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import contradictions
from brokerha.stores.files.durable import replace_file

log = structlog.get_logger()

FILE: Final = "settings.json"
NEVER: Final = -1
"""LSN of the rows before any copy has told them."""
Rows = Mapping[str, Row]


class NodeSettings:
    """The run-time settings of one node; they belong to its loop once the node runs."""

    def __init__(self, file: ClusterConfig, node: NodeId, folder: Path | None = None) -> None:
        """``file``: the cluster file as it was read. ``folder``: the node's folder; None keeps nothing."""
        self._file = file
        self._node = node
        self._path = None if folder is None else folder / FILE
        self._governed: list[tuple[Any, Callable[[ClusterConfig], Any]]] = []
        self.rows: Rows = {}
        """The rows learnt last, in force or not."""
        self.lsn: Lsn = NEVER
        """LSN of the copy that these rows come from."""
        self.problem = ""
        """Why the rows are not in force here; empty when they are."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after the values in force have changed."""
        self.started = file
        """Configuration that the node is built from: the file, and the rows known at its start."""
        self._read()
        self._running = self.started

    def govern(self, held: Any, wanted: Callable[[ClusterConfig], Any]) -> None:
        """Keep a configuration of a part of the node up to date: it takes the values of ``wanted`` at all settings in force."""
        self._governed.append((held, wanted))

    def problem_with(self, name: str, value: str | None) -> str:
        """Return the contradiction that a setting of this value would cause here, or an empty string. None unsets it."""
        try:
            at_start(self._file, {**self.rows, name: Row(value, "", 0, "")})
        except ConfigurationError as error:
            return str(error)
        return ""

    def learn(self, lsn: Lsn, rows: Rows) -> None:
        """Take the rows of a copy that had applied ``lsn``, and put the live ones into force."""
        self.lsn = lsn
        if rows == self.rows:
            return
        self.rows, before = dict(rows), self._running
        try:
            at_start(self._file, rows)
            self._running, self.problem = running(self._file, rows, self.started), ""
        except ConfigurationError as error:
            self.problem = str(error)
            log.error("settings are not in force", node=self._node, lsn=lsn, problem=self.problem)
            return
        for held, wanted in self._governed:
            put_in_force(held, wanted(self._running))
        self._write()
        now = {name: text_in(self._running, name) for name in SETTINGS}
        changed = {name: text for name, text in now.items() if text != text_in(before, name)}
        log.info("settings", node=self._node, lsn=lsn, in_force=changed, restart_for=self.restart_for())
        self.on_change()

    def attention(self) -> str:
        """Return the problem that needs a person's attention, or an empty string."""
        return f"settings are not in force here, the cluster file says something else: {self.problem}" if self.problem else ""

    def restart_for(self) -> list[str]:
        """Return the settings that get another value at this node's next start."""
        return [] if self.problem else [name for name in SETTINGS if self._next(name) != text_in(self._running, name)]

    def _next(self, name: str) -> str:
        row = self.rows.get(name)
        return text_in(self._file, name) if row is None or row.value is None else text_of(value_of(name, row.value))

    def report(self) -> list[dict[str, Any]]:
        """Return all settings: the cluster's value, the file's, the one in force here; who set it, when and from where."""
        return [self.report_of(name) for name in SETTINGS]

    def report_of(self, name: str) -> dict[str, Any]:
        """Return the same for one setting."""
        row, limits = self.rows.get(name), SETTINGS[name]
        return {
            "name": name,
            "value": self._next(name),
            "source": "file" if row is None or row.value is None else "cluster",
            "file": text_in(self._file, name),
            "in_force": text_in(self._running, name),
            "live": limits.is_live,
            "takes": limits.words,
            "by": None if row is None else row.by,
            "at": None if row is None else row.at_us,
            "from": None if row is None else row.origin,
        }

    # ---- the file that is known at the next start

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            rows = rows_of(json.loads(self._path.read_bytes()))
            self.started, self.rows = at_start(self._file, rows), rows
        except FileNotFoundError:
            return
        except ConfigurationError as error:
            self.problem = str(error)
            log.error("settings are not in force", node=self._node, problem=self.problem)
        except (OSError, ValueError) as error:
            # They are learnt again from a copy.
            log.warning("kept settings cannot be read", node=self._node, file=str(self._path), error=str(error))

    def _write(self) -> None:
        if self._path is None:
            return
        kept = {name: json.loads(packed(row)) for name, row in self.rows.items()}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(kept, ensure_ascii=False, indent=1).encode())
        except OSError as error:
            log.warning("settings cannot be kept", node=self._node, file=str(self._path), error=str(error))


def rows_of(told: Any) -> dict[str, Row]:
    """Return the rows by name from the answer to a read of kind ``settings``, without the settings that this version does not know.

    Raises ValueError for any other answer.
    """
    if not isinstance(told, Mapping):
        raise ValueError("no object of settings")  # noqa: TRY004  (as for JSON that cannot be read)
    found = {}
    for name, fields in told.items():
        value = json.dumps(fields).encode()
        if problem := problem_of(str(name).encode(errors="replace"), value):
            log.warning("a setting is not understood", problem=problem)
            continue
        found[name] = row_in(value)
    return found


def put_in_force(held: Any, wanted: Any) -> None:
    """Copy all values of a configuration into another one of its kind, recursively.

    They are frozen, so that no part changes them; only this function does.
    """
    for field in dataclasses.fields(held):
        old, new = getattr(held, field.name), getattr(wanted, field.name)
        if dataclasses.is_dataclass(old) and type(old) is type(new):
            put_in_force(old, new)
        elif old != new:
            object.__setattr__(held, field.name, new)


# ---- settings over the cluster file: the cluster's value wins over the file's (model/reserved/settings.py)


def at_start(file: ClusterConfig, rows: Rows) -> ClusterConfig:
    """Return the file with all rows over it. Raises ConfigurationError when the values contradict each other."""
    return _checked(dataclasses.replace(file, **_values(rows)))


def running(file: ClusterConfig, rows: Rows, started: ClusterConfig) -> ClusterConfig:
    """Return the values in force in a node that ``started`` with these. Raises ConfigurationError for contradictions."""
    values = {_field(name): getattr(started, _field(name)) for name, limits in SETTINGS.items() if not limits.is_live}
    live = {name: row for name, row in rows.items() if SETTINGS[name].is_live}
    return _checked(dataclasses.replace(file, **values, **_values(live)))


def text_in(config: ClusterConfig, name: str) -> str:
    """Return the value of a setting in a configuration, as text."""
    return text_of(getattr(config, _field(name)))


def _values(rows: Rows) -> dict[str, Any]:
    return {_field(name): value_of(name, row.value) for name, row in rows.items() if row.value is not None}


def _checked(config: ClusterConfig) -> ClusterConfig:
    for _, problem, remedy in contradictions({name: getattr(config, _field(name)) for name in SETTINGS}):
        raise ConfigurationError(f"{problem}: set {remedy}")
    if config.publish_changes and not config.log_stream:
        raise ConfigurationError("publish-changes needs log-stream: set log-stream to true, or publish-changes to false")
    return config


def _field(name: str) -> str:
    return name.replace("-", "_")
