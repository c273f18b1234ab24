"""The control suite as values: checks that must hold after every transaction, and their shapes.

A **check** has a name, a kind, a target, a text, and an expected result:

| kind     | target     | text         | expected                                                                     |
|----------|------------|--------------|------------------------------------------------------------------------------|
| `ask`    | repository | ASK query    | `true` or `false`                                                            |
| `select` | repository | SELECT query | JSON list of rows, each a list of N-Triples terms or null                    |
| `key`    | table      | key (UTF-8)  | `present`, `absent`, `= VALUE`, `!= VALUE`, `>= NUMBER` or `<= NUMBER`       |

The suite is a part of the replicated content. A transaction is rejected when a check that it touches fails after it, so all
checks hold at every LSN. This module checks only what needs no store; stores/control/sparql.py parses SPARQL.

>>> problem_of(("stock", "key", "items", "sku-1", ">= 0"))
''
>>> problem_of(("stock", "key", "items", "sku-1", "> 0"))[:40]
"'> 0' is no condition: write present, ab"
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import is_repository_id
from brokerha.model.outside.foreign_json import parse_foreign_json
from brokerha.model.reserved import branches, staging, table_snapshots

ASK: Final = "ask"
SELECT: Final = "select"
KEY: Final = "key"
KINDS: Final = (ASK, SELECT, KEY)
CHECKS_LIMIT: Final = 100
"""Limit of checks in one cluster."""
TEXT_LIMIT_BYTES: Final = 16 * 1024
EXPECTED_LIMIT_BYTES: Final = 64 * 1024
ROWS_LIMIT: Final = 1000
"""Limit of rows that a `select` check expects."""
KEY_LIMIT_BYTES: Final = 400
TABLE_LIMIT_BYTES: Final = 64
PRIVATE: Final = {branches.TABLE: "what is prepared", staging.TABLE: "what is staged", table_snapshots.TABLE: "snapshots"}
"""Tables that clients cannot write by name, with their content."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_FAILURE: Final = re.compile(r"check '[A-Za-z0-9_.-]{1,64}' failed(?=: )")
_TARGET: Final = re.compile(r"\((?:ASK|SELECT) in repository '([A-Za-z0-9_-]+)'\)\Z|\(key '[^']*' of table '([^'\\]+)'\)\Z")
"""The end of a failure; a key or table with quotes in its name is not recognised, so only users who can read all see it."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?\Z")


class Check(NamedTuple):
    """One check."""

    name: str
    kind: str
    target: str
    """Repository of `ask` and `select`, table of `key`."""
    text: str
    """The query, or the key as text."""
    expected: str

    def about(self) -> str:
        """Return the subject of the check, for messages."""
        if self.kind == KEY:
            return f"key {shortened(self.text)!r} of table {self.target!r}"
        return f"{self.kind.upper()} in repository {self.target!r}"


class Condition(NamedTuple):
    """The condition of a `key` check on a value."""

    sign: str
    """``present``, ``absent``, ``=``, ``!=``, ``>=`` or ``<=``."""
    value: str
    """The text after the sign."""


def failure(check: Check, problem: str) -> str:
    """Return the reason for which a transaction is rejected after this check failed."""
    return f"check {check.name!r} failed: {problem} ({check.about()})"


def failed_in(reason: str) -> tuple[str, str, str] | None:
    """Return of a `failure` the part without data, the repository and the table; None for another reason. Masters keep reasons as text.

    >>> failed_in("check 'c' failed: expected true, found false (ASK in repository 'main')")
    ("check 'c' failed", 'main', '')
    >>> failed_in("check 'c' failed: expected >= 0, found -1 (key 'k' of table 't')")
    ("check 'c' failed", '', 't')
    """
    found = _FAILURE.search(reason)
    if found is None:
        return None
    target = _TARGET.search(reason)
    return found[0], *((target[1] or "", target[2] or "") if target else ("", ""))


def is_check_name(text: str) -> bool:
    """Tell whether this is a valid name of a check."""
    return _NAME.match(text) is not None


def problem_of(fields: tuple[Any, ...]) -> str:
    """Return the problem with the shape of a check (name, kind, target, text, expected), or an empty string."""
    check = Check(*fields)
    if not is_check_name(check.name):
        return f"{check.name[:80]!r} is no name of a check ([A-Za-z0-9_.-]{{1,64}})"
    if check.kind not in KINDS:
        return f"unknown kind of check {check.kind[:80]!r}; known are {', '.join(KINDS)}"
    for what, text, limit_bytes in (("text", check.text, TEXT_LIMIT_BYTES), ("expectation", check.expected, EXPECTED_LIMIT_BYTES)):
        size_bytes = _size_bytes(text)
        if not 0 <= size_bytes <= limit_bytes:
            return f"the {what} of a check is UTF-8 text of at most {limit_bytes} bytes"
    if check.kind == KEY:
        return _problem_of_key(check)
    if not is_repository_id(check.target):
        return f"{check.target[:80]!r} is no repository id ([A-Za-z0-9_-]{{1,64}})"
    return _problem_of_answer(check)


def condition_of(expected: str) -> Condition | None:
    """Return the condition of a text; None when it is not one."""
    if expected in {"present", "absent"}:
        return Condition(expected, "")
    sign, space, value = expected.partition(" ")
    if not space or sign not in {"=", "!=", ">=", "<="}:
        return None
    if sign in {">=", "<="} and number_of(value) is None:
        return None
    return Condition(sign, value)


def number_of(text: str) -> Decimal | None:
    """Return the number of a text in plain decimal notation; None when it is not one."""
    return Decimal(text) if _NUMBER.match(text) else None


def rows_of(expected: str) -> list[list[str | None]] | None:
    """Return the rows that a `select` check expects; None when the text is not a JSON list of them."""
    try:
        rows = parse_foreign_json(expected)
    except InvalidRequest:
        return None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return None
    cells = (cell for row in rows for cell in row)
    return rows if all(cell is None or isinstance(cell, str) for cell in cells) else None


def shortened(text: str, limit: int = 80) -> str:
    """Return a text, cut for messages."""
    return text if len(text) <= limit else text[:limit] + "..."


def _problem_of_key(check: Check) -> str:
    if not check.target or "\0" in check.target or not 0 <= _size_bytes(check.target) <= TABLE_LIMIT_BYTES:
        return f"a table name has 1 to {TABLE_LIMIT_BYTES} bytes and no NUL"
    if check.target in PRIVATE:
        return f"table {check.target} is brokerha's own: it holds {PRIVATE[check.target]}"
    if not 1 <= _size_bytes(check.text) <= KEY_LIMIT_BYTES:
        return f"a key has 1 to {KEY_LIMIT_BYTES} bytes, this one has {_size_bytes(check.text)}"
    if condition_of(check.expected) is None:
        signs = "present, absent, = VALUE, != VALUE, >= NUMBER or <= NUMBER"
        return f"{shortened(check.expected)!r} is no condition: write {signs}"
    return ""


def _problem_of_answer(check: Check) -> str:
    if check.kind == ASK:
        return "" if check.expected in {"true", "false"} else "an ask check expects true or false"
    rows = rows_of(check.expected)
    if rows is None:
        return "a select check expects a JSON list of rows, each a list of N-Triples terms or null"
    if len(rows) > ROWS_LIMIT:
        return f"a select check expects at most {ROWS_LIMIT} rows, not {len(rows)}"
    return ""


def _size_bytes(text: str) -> int:
    """Return the size as UTF-8; -1 for half of a surrogate pair, which Python can hold and UTF-8 cannot."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1
