"""One question to several nodes at once: a node that is frozen costs the others no time.

Whoever asks gets what those said that answered; a node that is silent is waited for no longer than ``SILENT_S`` where there
are others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from brokerha.model.errors import BrokerhaError

SILENT_S = 4.0
"""How long one of several nodes may take to answer."""

T = TypeVar("T")


def ask_everywhere(urls: Sequence[str], ask: Callable[[str], T]) -> dict[str, T]:
    """What each node answers, without those that fail. Raises what the last one said when all do.

    >>> ask_everywhere(["a", "b"], str.upper)
    {'a': 'A', 'b': 'B'}
    """
    answers: dict[str, T] = {}
    problem: BrokerhaError | None = None
    with ThreadPoolExecutor(len(urls), thread_name_prefix="brokerha everywhere") as threads:
        asked = {url: threads.submit(ask, url) for url in urls}
        for url, future in asked.items():
            try:
                answers[url] = future.result()
            except BrokerhaError as error:
                problem = error
    if not answers and problem is not None:
        raise problem
    return answers
