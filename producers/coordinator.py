"""Write to several databases at once, clusters of brokerha and PostgreSQL: a transaction commits in all that it names, or in none.

    python -m brokerha.programs.producers.coordinator --log coordinator.db
        --at orders=http://127.0.0.1:7201 --at books=postgresql:///books < transactions.jsonl

A line of input names the work for each database; a line of output is `committed`, or `rolled back` with the reason:

    {"id": "4711", "orders": [["put", "paid", "4711", "9.90"]], "books": ["INSERT INTO paid VALUES (4711, 9.90)"]}

All databases prepare, the decision goes to the log on disk, then all commit (PEP 249). After a kill, a start with the same log ends all
prepared transactions. Then give it all lines again: a committed id is skipped. Exit code 75 means that a database does not answer: run it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import sqlite3
import sys
from typing import Any

try:
    import psycopg
except ImportError:
    if __name__ != "__main__":
        raise
    sys.exit("coordinator: there is no driver for PostgreSQL here: pip install 'brokerha[postgresql]'")

import brokerha
from brokerha.errors import BrokerhaError, ConfigurationError

FORMAT = 4711
KINDS = ("put", "delete", "update", "publish")
ERRORS = (BrokerhaError, psycopg.Error)
Databases = dict[str, Any]
"""Connections to brokerha or through psycopg, by name, with the methods of PEP 249 for two phases."""


class Log:
    """The decisions on disk, with a unique name of this coordinator; for one process at a time."""

    def __init__(self, path: str) -> None:
        self._file = sqlite3.connect(path, timeout=10, isolation_level=None)
        for statement in (
            "PRAGMA synchronous = FULL",
            "PRAGMA locking_mode = EXCLUSIVE",
            "CREATE TABLE IF NOT EXISTS committed (id TEXT PRIMARY KEY)",
        ):
            self._file.execute(statement)
        self._file.execute("CREATE TABLE IF NOT EXISTS coordinator AS SELECT ? AS name", [secrets.token_hex(4)])
        self.name = str(self._file.execute("SELECT name FROM coordinator").fetchone()[0])

    def has(self, ident: str) -> bool:
        """Tell whether the decision is to commit everywhere."""
        return self._file.execute("SELECT 1 FROM committed WHERE id = ?", [ident]).fetchone() is not None

    def add(self, ident: str) -> None:
        """Decide to commit: from here on the transaction commits after any crash."""
        self._file.execute("INSERT INTO committed VALUES (?)", [ident])


def recover(log: Log, databases: Databases) -> None:
    """End the transactions that this coordinator has prepared and not ended."""
    for session in databases.values():
        for xid in session.tpc_recover():
            gtrid = xid.gtrid.decode(errors="replace") if isinstance(xid.gtrid, bytes) else xid.gtrid
            name, _, ident = gtrid.partition("/")
            if name == log.name:
                (session.tpc_commit if log.has(ident) else session.tpc_rollback)(xid)


def run(log: Log, databases: Databases, ident: str, work: dict[str, list[Any]]) -> str:
    """Run one transaction; return why it was rolled back, or "" after a commit. Raises BrokerhaError or psycopg.Error when only `recover` can end it."""
    if log.has(ident):
        return ""
    begun: list[Any] = []
    try:
        for name, steps in work.items():
            session = databases[name]
            session.tpc_begin(session.xid(FORMAT, f"{log.name}/{ident}", name))
            begun.append(session)
            for step in steps:
                if isinstance(step, str):
                    session.execute(step)
                else:
                    getattr(session, step[0])(*step[1:])
        for session in begun:
            session.tpc_prepare()
    except (*ERRORS, TypeError, ValueError) as error:  # TypeError, ValueError: a step with too few words, an id that is too long.
        for session in begun:
            session.tpc_rollback()
        return str(error) or type(error).__name__
    log.add(ident)
    for session in begun:
        session.tpc_commit()
    return ""


def is_step(session: Any, step: Any) -> bool:
    """Tell whether a database can run this step: a statement of SQL, or a call of brokerha."""
    return isinstance(step, str) if hasattr(session, "execute") else step[0] in KINDS


def checked(line: str, databases: Databases) -> tuple[str, dict[str, list[Any]]]:
    """Return the id and the work of a line. Raises ValueError."""
    try:
        work = json.loads(line)
        ident = work.pop("id")
        chosen = [(databases[name], steps) for name, steps in work.items()]
        good = all(steps and all(is_step(session, step) for step in steps) for session, steps in chosen)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{line.strip()[:80]}: {error!r}") from None
    if not good or not isinstance(ident, str):
        raise ValueError(
            f"{line.strip()[:80]}: an id, and of each database SQL statements or lists that begin with one of {', '.join(KINDS)}"
        )
    return ident, work


def connected(url: str) -> Any:
    """Connect to a database."""
    if not url.startswith("postgresql:"):
        return brokerha.connect(url)
    session = psycopg.connect(url, autocommit=True, connect_timeout=10, tcp_user_timeout=30_000)
    session.execute("SET lock_timeout = '10s'; SET statement_timeout = '60s'")
    session.autocommit = False
    return session


def main() -> int:
    """Run all lines; return the exit code."""
    parser = argparse.ArgumentParser(prog="coordinator", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", required=True, help="file of decisions; without it nobody knows how to end what is prepared")
    parser.add_argument(
        "--at", required=True, action="append", metavar="NAME=URL", help="a database: http://…, amqp://… or postgresql://…"
    )
    options = parser.parse_args()
    try:
        with contextlib.ExitStack() as stack:
            log = Log(options.log)
            databases = {name: stack.enter_context(connected(url)) for name, _, url in (at.partition("=") for at in options.at)}
            recover(log, databases)
            for line in sys.stdin:
                ident, work = checked(line, databases)
                reason = run(log, databases, ident, work)
                print(json.dumps({"id": ident, "state": "rolled back" if reason else "committed", "reason": reason}), flush=True)
            recover(log, databases)
    except (ValueError, ConfigurationError) as error:
        parser.error(str(error))
    except (*ERRORS, sqlite3.OperationalError) as error:
        print(f"coordinator: {error}; run it again with the same log", file=sys.stderr)
        return 75  # EX_TEMPFAIL: run it again.
    except sqlite3.DatabaseError as error:
        parser.error(f"--log {options.log}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
