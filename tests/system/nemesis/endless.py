"""A thread that does its work until it is told to end."""

from __future__ import annotations

import threading
from collections import Counter


class Endless:
    """A thread that does its work again and again until it is ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: BaseException | None = None
        self.errors: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    def join(self, within_s: float = 90.0) -> None:
        """Wait until it is over; raises what ended it before its time."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as fault:  # noqa: BLE001  (told by join)
            self.fault = fault

    def work(self) -> None:
        raise NotImplementedError
