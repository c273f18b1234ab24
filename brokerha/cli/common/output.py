"""Output of commands: the same rows as table, JSON, YAML or tab-separated values.

JSON is the contract (docs/reference/commands.md); YAML holds the same data; a table is for people and can change. The writers take
plain data: dicts, lists, texts, numbers, truth values, None. `rich` is imported only for a table.

>>> print(yaml_text({"id": "m1", "lag_s": 0.5, "peers": []}))
id: m1
lag_s: 0.5
peers: []
"""

from __future__ import annotations

import enum
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 240
"""Wide enough that a file or a pipe gets uncut lines."""

_PLAIN = re.compile(r"[a-z][a-z0-9_-]*\Z")
_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class Format(enum.StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    TSV = "tsv"


def write(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], chosen: Format, columns: Mapping[str, str]) -> None:
    """Write a whole answer: ``data`` as JSON or YAML, or ``rows`` as a table or as TSV.

    ``columns`` maps fields to the headings of a table; TSV has every field of the first row.
    """
    if chosen is Format.JSON:
        print(json.dumps(data, ensure_ascii=False))
    elif chosen is Format.YAML:
        print(yaml_text(data))
    elif chosen is Format.TSV:
        write_tsv(rows)
    else:
        console().print(table(rows, columns))


def write_tsv(rows: Sequence[Mapping[str, Any]], *, with_head: bool = True) -> None:
    """Write a line of names, then a line for each row; tabs and line breaks inside values are escaped."""
    if not rows:
        return
    names = list(rows[0])
    if with_head:
        print("\t".join(names))
    for row in rows:
        print("\t".join(tsv_cell(row.get(name)) for name in names))


def tsv_cell(value: object) -> str:
    r"""Format one value as text; empty for None.

    >>> tsv_cell("a\tb")
    'a\\tb'
    """
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def console() -> Console:
    """Return the console of standard output: coloured on a terminal (not with NO_COLOR), never cut in a pipe."""
    from rich.console import Console  # takes a tenth of a second

    class Piped(Console):
        """The base class would exit with 1, as for a degraded cluster, when the reader goes away."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False, markup=False)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, with_head: bool = True) -> Table:
    """Make a table of rows; numbers are aligned to the right."""
    from rich.table import Table

    result = Table(box=None, pad_edge=False, header_style="bold", show_header=with_head)
    for name, head in columns.items():
        is_number = any(isinstance(row.get(name), int | float) for row in rows)
        result.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        result.add_row(*(shown(row.get(name)) for name in columns))
    return result


def shown(value: object) -> str:
    """Format a value for people: thousands separated, empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


def time_text(timestamp_us: int) -> str:
    """Format microseconds since 1970 for people, in UTC.

    >>> time_text(1_795_234_542_116_798)
    '2026-11-21 04:15:42.116798'
    """
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=timestamp_us)).strftime("%Y-%m-%d %H:%M:%S.%f")


def counted(count: int, thing: str) -> str:
    """Format a number with its noun.

    >>> counted(1, "line"), counted(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def yaml_text(data: object, indent: int = 0) -> str:
    """Format plain data as YAML; ambiguous texts are quoted as in JSON, which YAML reads too."""
    margin = "  " * indent
    if isinstance(data, Mapping) and data:
        return "\n".join(f"{margin}{_scalar(str(key))}:{_child(value, indent)}" for key, value in data.items())
    if isinstance(data, list | tuple) and data:
        return "\n".join(f"{margin}-{_item(value, indent)}" for value in data)
    return margin + _scalar(data)


def _child(value: object, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return "\n" + yaml_text(value, indent + 1)
    return " " + _scalar(value)


def _item(value: object, indent: int) -> str:
    if isinstance(value, Mapping | list | tuple) and value:
        return " " + yaml_text(value, indent + 1).lstrip()
    return " " + _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value not in _YAML_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
