"""The nodes that an archive is made from, beside their log: what they say of themselves, and the pins that keep their logs.

Each master keeps and trims a log of its own, so a pin is set at every address that there is: any of them may be the one that is read
from next time. One that takes it is enough, because those that are away now have the pin of the last run. A process that stands by
takes none; its primary does. Must never wait long for a node: what is asked here is worth less than going on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from brokerha.client.http_asking import SILENT_S, ask_everywhere
from brokerha.model.ids import Lsn
from brokerha.pipeline.sources import SourceSpec

if TYPE_CHECKING:
    from brokerha.client import Client


class SourceCluster:
    """Clients of all addresses of one source."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients

    def pin(self, name: str, lsn: Lsn, for_s: int) -> object:
        """Keep entries from an LSN on, for so long. Raises what the last one said when none of them did."""
        return ask_everywhere(list(self._clients), lambda url: self._clients[url].pin(name, lsn, for_s))

    def status(self) -> dict[str, Any]:
        """What the first one says that answers, of all nodes. Raises Unreachable, NotReady."""
        answers = ask_everywhere(list(self._clients), lambda url: self._clients[url].status())
        return next(iter(answers.values()))


@contextmanager
def cluster_of(spec: SourceSpec) -> Iterator[SourceCluster | None]:
    """The nodes of a source; None for one that is not read from nodes."""
    if not spec.url:
        yield None
        return
    from brokerha import connect

    with ExitStack() as stack:
        urls = [url for each in spec.url.split(",") if (url := each.strip())]
        timeout_s = min(SILENT_S, spec.timeout_s)
        yield SourceCluster({url: stack.enter_context(connect(url, timeout=timeout_s)) for url in urls})
