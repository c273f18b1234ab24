"""What tests of harmed workers share: what a node wrote since a moment, and whether it is back.

log = Log(cluster, node)        # before the harm
...                             # the harm
while not is_back(cluster, node, log): ...
"""

from __future__ import annotations

from brokerha.model.states import SERVING
from tests.support.waiting import until
from tests.system.processes import ProcessCluster
from tests.system.writers import Writer, told


class Log:
    """What a node wrote since a moment."""

    def __init__(self, cluster: ProcessCluster, node: str) -> None:
        self._path = cluster.folder / "up.log"
        self._node = node
        self._at = self._path.stat().st_size

    def lines(self, *words: str) -> list[str]:
        """Lines of the node, and about its end, with one of these words."""
        text = self._path.read_bytes()[self._at :].decode("utf-8", "replace")
        named = [line for line in text.splitlines() if line.startswith((f"{self._node} ", f"brokerha: {self._node} "))]
        return [line for line in named if any(word in line for word in words)]

    def signs(self) -> list[str]:
        """Lines that tell of damage to its copy."""
        return self.lines("state=load", "moved aside", "is damaged")


def is_back(cluster: ProcessCluster, node: str, log: Log) -> bool:
    """Whether a worker is in sync for its master, and the last that it wrote itself is that it follows."""
    state = str(cluster.row(node).get("state"))
    # The log after the master: what it thinks may be of the moment before the harm.
    last = log.lines("follows", "moved aside", "is damaged")[-1:]
    return state in SERVING and any("state=basic" in line for line in last)


def await_writes(writers: list[Writer], count: int) -> None:
    """Wait until so many more writes were acknowledged."""
    goal = told(writers) + count
    until(lambda: told(writers) >= goal, f"{count} more writes are acknowledged")
