"""One question to several nodes: to all at once, or one after the other until one knows the answer.

    ask_everywhere       what those said that answered: a node that is frozen costs the others no time
    ask_until_known      what became of a transaction, from the first that knows it

| a node says of a transaction | means |
|---|---|
| what became of it | the answer |
| NotFound | unknown there; another master, the one that began it, may know that it was rolled back |
| NotReady, NotPrimary | it speaks for no master now |
| nothing (Unreachable, TimedOut) | it may be the one that knows: ask again while there is time |

Must never: call a transaction unknown while a node that may know it was not heard.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_before_delay, stop_when_event_set, wait_fixed

from brokerha.model.errors import BrokerhaError, NotFound, NotReady, TimedOut, Unreachable, may_pass

SILENT_S: Final = 4.0
"""How long one of several nodes may take to answer."""
PAUSE_S: Final = 0.2
"""Before all of them are asked again."""

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


def ask_until_known(
    urls: Sequence[str], ask: Callable[[str, float], T], deadline_s: float, closing: threading.Event
) -> tuple[str, T] | None:
    """Who knows it, and the answer; None when all that could be asked do not know it. Raises what a node said that was not heard.

    ``ask`` gets a node and the moment until which it may take; ``closing`` ends a pause, and the rounds.
    """
    rounds = Retrying(
        retry=retry_if_exception(_may_pass),
        wait=wait_fixed(PAUSE_S),
        stop=stop_before_delay(deadline_s - time.monotonic()) | stop_when_event_set(closing),
        sleep=sleep_using_event(closing),
        reraise=True,
    )
    return rounds(_one_round, urls, ask, deadline_s)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, (Unreachable, TimedOut)) or (isinstance(error, BrokerhaError) and may_pass(error))


def _one_round(urls: Sequence[str], ask: Callable[[str, float], T], deadline_s: float) -> tuple[str, T] | None:
    is_unknown = False
    problem: BrokerhaError | None = None
    refused: BrokerhaError = Unreachable("no node was asked")
    for url in urls:
        now_s = time.monotonic()
        try:
            return url, ask(url, now_s + max(0.001, deadline_s - now_s) / len(urls))
        except NotFound:
            is_unknown = True
        except TimedOut as error:
            problem = error
        except NotReady as error:
            refused = error
        except BrokerhaError as error:
            problem = error
    if problem is None and is_unknown:
        return None
    raise problem or refused
