"""The reference page of all JSON that commands write, and the file of each schema, made from brokerha/cli/reference/json_schemas.py.

    python -m brokerha.cli.reference.json_page        # writes docs/reference/json.md and docs/reference/schemas/*.json

A test fails when they are not up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from brokerha.cli.reference.json_schemas import OUTPUTS, lines_of, schema_of

FOLDER: Final = Path(__file__).resolve().parents[3] / "docs" / "reference"
_START: Final = """\
# JSON of the commands

<!-- Made by `python -m brokerha.cli.reference.json_page`; change the code, not this page. -->

What commands write with `-o json`. Fields may be added; none is taken away, renamed or given another type
within a major version: be ready for fields that you do not know. Each form has a JSON schema in [schemas](schemas/).

Units are in the names: `_s` seconds, `_us` and `timestamp` microseconds since 1970, `_bytes` bytes, `lsn` a place in the log. A type with `?`
may be null too; a field with `~` is there in some cases only. `x[].y` is the field `y` of each element of the list `x`.

"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_START.rstrip(), ""]
    for name, output in OUTPUTS.items():
        commands = ", ".join(f"`brokerha {each}`" for each in output.commands)
        lines = " One object in each line." if output.is_lines else ""
        parts += [
            f"## {name}",
            "",
            f"{commands}: {output.about}{lines} Schema: [{name}.json](schemas/{name}.json).",
            "",
        ]
        parts += ["| field | type |", "|---|---|"]
        parts += [f"| `{place}` | {kind} |" for _, place, kind in (line.split(" ") for line in lines_of(name))]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def files() -> dict[Path, str]:
    """Return each file with its expected content."""
    made = {FOLDER / "json.md": page()}
    for name in OUTPUTS:
        made[FOLDER / "schemas" / f"{name}.json"] = json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"
    return made


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
