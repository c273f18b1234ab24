"""Whether the last processes that had a copy open closed it cleanly, so that data that kills its process is not opened for ever.

LMDB and RocksDB end the process on some damage, when it is read. A supervisor starts it again, it reads again. So a small
file in the directory of the worker counts the lives that ended badly, one after the other, without a whole look at all
data (a scrub that found nothing) between them:

    begin      the file is there already: the life before ended badly, one more; now this one is written down
    found_whole   all data was read and is right: whatever ended those lives, it was not the data; counting begins again
    end        in order: the file is deleted

    0   nothing is suspected
    1   the data is looked at first thing, in the background, while the worker follows and answers reads
    2+  it is looked at before anything else is done with it, at full speed; its steps are written down as it goes on
        DEATHS_LIMIT such looks in a row that ended the process at the same step   ->  the copy counts as damaged

Nothing else than a look counts against a copy: not a query or a write that ends each process that evaluates it, nor the
impatience of a person or of a supervisor, whose kills come at another step each time. These may not cost the copies of
a whole cluster. Lives are of one copy: one with another number begins anew.
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
    """The lives of the copies in one directory; the process has the directory. Any thread, one at a time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._number = 0
        self._is_begun = False
        self._steps = 0
        self._places: list[int] = []
        """Steps of the last looks that ended the process."""
        self.bad_ends = 0
        """Lives before this one that ended badly, since the last that did not or found everything right."""

    @property
    def must_look_first(self) -> bool:
        """Whether nothing may be done with the copy before all of it was read."""
        return self.bad_ends >= LOOK_FIRST

    def begin(self, number: int) -> None:
        """This process has the copy from now on. Raises StoreDamaged when looking at it ends every process, StoreError."""
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
        """A look that comes before everything else has come a step further; not durable, as it is about processes that end."""
        self._steps += 1
        with suppress(OSError):
            (self._home / LOOKING).write_bytes(b"%d\n" % self._steps)

    def found_whole(self) -> None:
        """All data was read and is right. Raises StoreError."""
        if self.bad_ends or self._places:
            self.bad_ends, self._places = 0, []
            self._write()

    def look_ended(self) -> None:
        """A look came back, with whatever it found."""
        self._steps = 0
        with suppress(OSError):
            (self._home / LOOKING).unlink(missing_ok=True)

    def counts_as_bad(self) -> None:
        """However this life ends, it was given up: the next one is to look at the data."""
        self._is_begun = False

    def end(self) -> None:
        """This life ends in order. Idempotent."""
        if not self._is_begun:
            return
        self._is_begun = False
        for name in (LOOKING, LIFE):
            with suppress(OSError):
                (self._home / name).unlink(missing_ok=True)

    def _found(self) -> dict[str, Any]:
        """What the life before wrote; what cannot be read says nothing."""
        try:
            found = json.loads((self._home / LIFE).read_bytes())
            known = {"copy": int(found["copy"]), "bad_ends": int(found["bad_ends"])}
            return {**known, "places": [int(place) for place in found["places"]]}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def _place(self) -> int | None:
        """Where the look was that ended the process; None when there was none."""
        try:
            return int((self._home / LOOKING).read_bytes())
        except (OSError, ValueError):
            return None

    def _write(self) -> None:
        """Write this life down, durable, and that it does not look yet."""
        row = {"copy": self._number, "bad_ends": self.bad_ends, "places": self._places}
        with store_errors(f"cannot write down in {self._home.name} that a process has its copy"):
            # In this order, so that a kill in between forgets a place and never counts one twice.
            (self._home / LOOKING).unlink(missing_ok=True)
            replace_file(self._home / LIFE, json.dumps(row).encode() + b"\n")
