"""A count of the processes that had a copy open and did not close it cleanly, so that fatal data is not opened for ever.

LMDB and RocksDB end the process when they read some kinds of damage. A supervisor restarts it, and it reads the damage again. So
a small file in the directory of the worker counts consecutive lives that ended badly. A scrub that reads all data and finds no
damage resets the count:

    begin      the file exists: the life before ended badly, count it; then record this life
    found_whole   all data was read and is right: the data did not end those lives; the count restarts
    end        clean: the file is deleted

    0   no suspicion
    1   the data is read at once, in the background, while the worker follows and answers reads
    2+  the data is read before any other work, at full speed; the steps are recorded while it goes on
        DEATHS_LIMIT such looks in a row that ended the process at the same step   ->  the copy counts as damaged

Only such a look counts against a copy. A query or a write that ends every process that evaluates it does not count, nor do kills
by an impatient person or supervisor, which come at another step each time: they must not cost all copies of a cluster. Lives are
of one copy: another number starts at zero.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from brokerha.model.errors import StoreDamaged
from brokerha.stores.files.durable import replace_file
from brokerha.stores.files.environment import store_errors

LIFE: Final = "life"
LOOKING: Final = "looking"
LOOK_FIRST: Final = 2
DEATHS_LIMIT: Final = 3


class Lives:
    """The lives of the copies in one directory, which the process has locked. Any thread, one at a time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._number = 0
        self._is_begun = False
        self._steps = 0
        self._places: list[int] = []
        """Steps at which the last looks ended the process."""
        self.bad_ends = 0
        """Lives before this one that ended badly, since the last clean end or complete look."""

    @property
    def must_look_first(self) -> bool:
        """Tell whether all data must be read before any other work with the copy."""
        return self.bad_ends >= LOOK_FIRST

    def begin(self, number: int) -> None:
        """Record that this process has the copy. Raises StoreError, and StoreDamaged when reading the copy ends every process."""
        before = self._found()
        is_same = before.get("copy") == number
        self._number = number
        self.bad_ends = int(before["bad_ends"]) + 1 if is_same else 0
        self._places = list(before["places"]) if is_same else []
        if is_same and (place := self._place()) is not None:
            self._places = [*self._places, place][-DEATHS_LIMIT:]
        if len(self._places) == DEATHS_LIMIT and len(set(self._places)) == 1:
            raise StoreDamaged(
                f"looking at the data ended the process {DEATHS_LIMIT} times at the same place, step {self._places[0]}"
            )
        self._write()
        self._is_begun = True

    def look_goes_on(self) -> None:
        """Record one more step of a first look. Not durable: only the end of a process matters here."""
        self._steps += 1
        with suppress(OSError):
            (self._home / LOOKING).write_bytes(b"%d\n" % self._steps)

    def found_whole(self) -> None:
        """Record that all data was read and is right. Raises StoreError."""
        if self.bad_ends or self._places:
            self.bad_ends, self._places = 0, []
            self._write()

    def look_ended(self) -> None:
        """Record that a look returned, with any result."""
        self._steps = 0
        with suppress(OSError):
            (self._home / LOOKING).unlink(missing_ok=True)

    def counts_as_bad(self) -> None:
        """Count this life as bad, however it ends, so that the next life reads the data."""
        self._is_begun = False

    def end(self) -> None:
        """Record the clean end of this life. Idempotent."""
        if not self._is_begun:
            return
        self._is_begun = False
        for name in (LOOKING, LIFE):
            with suppress(OSError):
                (self._home / name).unlink(missing_ok=True)

    def _found(self) -> dict[str, Any]:
        """Return the record of the previous life; empty when it cannot be read."""
        try:
            found = json.loads((self._home / LIFE).read_bytes())
            known = {"copy": int(found["copy"]), "bad_ends": int(found["bad_ends"])}
            return {**known, "places": [int(place) for place in found["places"]]}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def _place(self) -> int | None:
        """Return the step of the look that ended the process; None when there was none."""
        try:
            return int((self._home / LOOKING).read_bytes())
        except (OSError, ValueError):
            return None

    def _write(self) -> None:
        """Record this life without a look; durable."""
        row = {"copy": self._number, "bad_ends": self.bad_ends, "places": self._places}
        with store_errors(f"cannot write down in {self._home.name} that a process has its copy"):
            # In this order a kill in between forgets a place; it never counts one twice.
            (self._home / LOOKING).unlink(missing_ok=True)
            replace_file(self._home / LIFE, json.dumps(row).encode() + b"\n")
