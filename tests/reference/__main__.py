"""All pages of docs/reference that are made from the code; writes those that have changed, and says which.

python -m tests.reference
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from tests.reference import api, commands, configuration, json_outputs, metrics, sentences

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Each file below `FOLDER` with the text that it should have."""
    made = {
        "api.md": api.page(),
        "commands.md": commands.page(),
        "configuration.md": configuration.page(),
        "json.md": json_outputs.page(),
        "metrics.md": metrics.page(),
        "sentences.md": sentences.page(),
    }
    for name in json_outputs.OUTPUTS:
        made[f"schemas/{name}.json"] = json.dumps(json_outputs.schema_of(name), indent=1, ensure_ascii=False) + "\n"
    return made


def outdated() -> dict[str, str]:
    """Those whose file says something else, or is not there."""
    return {name: text for name, text in pages().items() if text_of(name) != text}


def text_of(name: str) -> str:
    """The text of a file below `FOLDER`; empty if there is none."""
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> int:
    """Write them."""
    for name, text in outdated().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(FOLDER.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
