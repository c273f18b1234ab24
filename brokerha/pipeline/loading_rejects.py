"""The reject file: rejects of all splits in the order of the files, with the line numbers of the files, as lines of JSON.

    {"file": "/data/people.nt", "line": 17, "reason": "column 12: …", "text": "<urn:s> …"}
    {"file": "/data/people.nt", "line": 1001, "last_line": 2000, "reason": "the cluster rejected …", "text": "", "statements": 1000}

A task knows line numbers within its split only, because it did not read what is before it. They are completed here from the line counts of the
splits before it; what has none, because the load was stopped, is counted in the file, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from brokerha.model.errors import InvalidRequest
from brokerha.pipeline.loading import SHOWN_REJECTS, Reject, Split, SplitResult
from brokerha.pipeline.loading_ledger import Ledger, whole_file
from brokerha.pipeline.loading_lines import lines_before


def gather(
    splits: list[Split], known: dict[str, SplitResult], ledger: Ledger, named: str | None, *, is_dry_run: bool
) -> tuple[tuple[Reject, ...], str | None]:
    """Write the reject file; returns the first rejects, and where all of them are.

    A file that was ``named`` is written even if it is empty, the one in the state folder is there only when there are rejects, and a dry
    run writes only the one that was named. Raises InvalidRequest when it cannot be written.
    """
    found = _numbered(splits, known, ledger)
    path = Path(named) if named else ledger.directory / "rejects.jsonl"
    has_some = any(result.rejects for result in known.values())
    if named is None and not has_some:
        path.unlink(missing_ok=True)
        return (), None
    if named is None and is_dry_run:
        return tuple(reject for reject, _ in zip(found, range(SHOWN_REJECTS), strict=False)), None
    try:
        with whole_file(path) as file:
            return _write(found, file), str(path) if has_some else None
    except OSError as error:
        raise InvalidRequest(f"the reject file {path} cannot be written: {error.strerror or error}") from None


def _write(found: Iterator[Reject], file: IO[bytes]) -> tuple[Reject, ...]:
    first: list[Reject] = []
    for reject in found:
        if len(first) < SHOWN_REJECTS:
            first.append(reject)
        line: dict[str, Any] = {"file": reject.file, "line": reject.line, "reason": reject.reason, "text": reject.text}
        if reject.last_line != reject.line:
            line["last_line"] = reject.last_line
        if reject.lost != 1:
            line["statements"] = reject.lost
        file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    return tuple(first)


def _numbered(splits: list[Split], known: dict[str, SplitResult], ledger: Ledger) -> Iterator[Reject]:
    """Rejects of all splits, with the line numbers of their files."""
    waiting: list[Split] = []
    before = 0
    for split in splits:
        if split.first_line:
            waiting, before = [], split.first_line - 1
        result = known.get(split.name)
        if result is not None and result.rejects:
            before += sum(_lines_of(one, known) for one in waiting)
            waiting = []
            for reject in ledger.read_rejects(split):
                yield reject._replace(line=reject.line + before, last_line=reject.last_line + before)
        waiting.append(split)


def _lines_of(split: Split, known: dict[str, SplitResult]) -> int:
    """How many lines a split has: as its task says, or counted."""
    result = known.get(split.name)
    if result is not None and not result.is_stopped:
        return result.lines
    return lines_before(split.path, split.start, split.end)
