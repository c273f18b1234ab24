"""Settings of a role, the numbers of views, and the output of a role.

The number of a view is ten times its term plus the place of its primary. So two processes can never start the same view, and the
number shows which process acts:

>>> view_of(2, 1), place_of(21), term_of(21)
(21, 1, 2)

Views below ten are from before the first election: then the process with place 0 acts.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Outgoing
from brokerha.replication.role.table import RoleState

PLACES = 10
"""Limit of the processes of one master: places are the last digit of a view."""


def view_of(term: int, place: int) -> int:
    """Return the view that the process at ``place`` starts in ``term``."""
    return PLACES * term + place


def term_of(view: int) -> int:
    """Return the term of a view; 0 before the first election."""
    return view // PLACES


def place_of(view: int) -> int:
    """Return the place of the process that acts in a view."""
    return view % PLACES if view >= PLACES else 0


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """Settings of one process. Raises ConfigurationError when they contradict each other."""

    process: NodeId
    """This process."""
    master: NodeId
    processes: tuple[NodeId, ...]
    """All processes of the master, also this one; the index is the place."""
    sync_n: int
    """Number of backups that must hold a record before any message tells of it."""
    fail_over_after_ms: int = 3000
    """Silence of a primary after which another process may take its place."""
    is_automatic: bool = True
    """Whether a process stands by itself; otherwise only on an operator's command."""

    def __post_init__(self) -> None:
        """Check."""
        if self.process not in self.processes or len(set(self.processes)) != len(self.processes):
            raise ConfigurationError(
                f"the processes of master {self.master} must be different from each other and contain {self.process}; "
                f"they are {', '.join(self.processes) or 'none'}"
            )
        if len(self.processes) > PLACES:
            raise ConfigurationError(
                f"master {self.master} has {len(self.processes) - 1} backups; at most {PLACES - 1} are possible"
            )
        if not 0 <= self.sync_n < len(self.processes):
            raise ConfigurationError(
                f"sync-n of master {self.master} is {self.sync_n} with {len(self.processes) - 1} backups; "
                f"write 0 to {len(self.processes) - 1}"
            )
        if self.fail_over_after_ms < 1:
            raise ConfigurationError(f"fail-over-after-ms of master {self.master} must be at least 1")

    @property
    def place(self) -> int:
        """Return the place of this process."""
        return self.processes.index(self.process)

    @property
    def others(self) -> tuple[NodeId, ...]:
        """Return all processes except this one."""
        return tuple(process for process in self.processes if process != self.process)

    @property
    def votes_needed(self) -> int:
        """Return the votes that make a primary: they include the own one, and each earlier primary or one of its sync-N backups."""
        return len(self.processes) - self.sync_n

    @property
    def round_ms(self) -> int:
        """Return how long a candidate waits for votes."""
        return max(1, self.fail_over_after_ms // 3)

    @property
    def watch_ms(self) -> int:
        """Return how often a process that is not primary needs to be woken, so that it notices when it was stopped."""
        return max(1, self.fail_over_after_ms // 4)

    @property
    def silence_ms(self) -> int:
        """Return how long a process without a primary waits before it stands: later at each place, so that one is first."""
        return self.fail_over_after_ms * (10 + self.place) // 10

    @property
    def gone_ms(self) -> int:
        """Return the silence, longer than a heartbeat, after which the broker is asked about a primary's process."""
        return max(1, self.fail_over_after_ms // 3)

    def turn_ms(self, but: NodeId) -> int:
        """Return how long this process lets others stand first when all but one have a reason: one after the other."""
        rank = [process for process in self.processes if process != but].index(self.process)
        return self.fail_over_after_ms * rank // 10

    @property
    def first_wait_ms(self) -> int:
        """Return how long this process waits for a primary when it has just started."""
        return self.fail_over_after_ms * (2 + self.place) // 2

    def pause_ms(self, tries: int) -> int:
        """Return how long a candidate waits after so many tries: no two places keep in step."""
        return self.round_ms * (2 + self.place) * tries // 2

    def process_of(self, view: int) -> NodeId:
        """Return the process that acts in a view; empty when the master has none at that place."""
        place = place_of(view)
        return self.processes[place] if place < len(self.processes) else ""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A new role of a process."""

    state: RoleState
    """PRIMARY, STANDBY or IDLE."""
    view: int
    """The view of which it is primary; otherwise the highest one that it knows."""
    reason: str


@dataclass(frozen=True, slots=True)
class RoleReady:
    """The output of a role, in the order in which it must be carried out."""

    promise: int = 0
    """View to promise durably before the other actions; 0 when there is none."""
    messages: tuple[Outgoing, ...] = ()
    """Messages to send after that."""
    look: NodeId = ""
    """A primary about whose process the broker is to be asked."""
    change: RoleChange | None = None
    """The new role of the process, after all of that. Each change is told once."""

    def __bool__(self) -> bool:
        """Tell whether there is any action."""
        return bool(self.promise or self.messages or self.look or self.change)
