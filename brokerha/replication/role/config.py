"""Settings of a role, the numbers of views, and what a role asks of the world.

The number of a view is ten times its term and the place of its primary, so that two processes can never start the same
view, and everybody reads from the number who acts:

>>> view_of(2, 1), place_of(21), term_of(21)
(21, 1, 2)

Below ten is the time before the first election: then the process with place 0 acts.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Outgoing
from brokerha.replication.role.table import RoleState

PLACES = 10
"""Processes that one master may have: places are the last digit of a view."""


def view_of(term: int, place: int) -> int:
    """The view that the process at ``place`` starts in ``term``."""
    return PLACES * term + place


def term_of(view: int) -> int:
    """The term of a view; 0 before the first election."""
    return view // PLACES


def place_of(view: int) -> int:
    """The place of the process that acts in a view."""
    return view % PLACES if view >= PLACES else 0


@dataclass(frozen=True, slots=True)
class RoleConfig:
    """Settings of one process. Raises ConfigurationError when they contradict each other."""

    process: NodeId
    """This process."""
    master: NodeId
    processes: tuple[NodeId, ...]
    """All of the master, this one among them; the index is the place."""
    sync_n: int
    """Backups that must hold a record before anything of it is shown."""
    fail_over_after_ms: int = 3000
    """So long a primary may be silent before another process may take its place."""
    is_automatic: bool = True
    """Whether a process stands by itself; else only when an operator says so."""

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
        """Place of this process."""
        return self.processes.index(self.process)

    @property
    def others(self) -> tuple[NodeId, ...]:
        """All processes but this one."""
        return tuple(process for process in self.processes if process != self.process)

    @property
    def votes_needed(self) -> int:
        """Votes that make a primary, its own included: every set of so many meets every primary with its sync-N backups."""
        return len(self.processes) - self.sync_n

    @property
    def round_ms(self) -> int:
        """How long a candidate waits for votes."""
        return max(1, self.fail_over_after_ms // 3)

    @property
    def watch_ms(self) -> int:
        """How often a process that is not primary wants to be woken, so that it knows when it was stopped."""
        return max(1, self.fail_over_after_ms // 4)

    @property
    def silence_ms(self) -> int:
        """How long no primary may be heard before this process stands: later at each place, so that one is first."""
        return self.fail_over_after_ms * (10 + self.place) // 10

    @property
    def gone_ms(self) -> int:
        """Of a primary that is silent for this long, which is more than a heartbeat, the broker is asked whether its process is there."""
        return max(1, self.fail_over_after_ms // 3)

    def turn_ms(self, but: NodeId) -> int:
        """How long this process leaves it to others to stand where all but one have a reason to: one after the other."""
        rank = [process for process in self.processes if process != but].index(self.process)
        return self.fail_over_after_ms * rank // 10

    @property
    def first_wait_ms(self) -> int:
        """How long this process waits for a primary when it has just started."""
        return self.fail_over_after_ms * (2 + self.place) // 2

    def pause_ms(self, tries: int) -> int:
        """How long a candidate waits after so many tries: no two places keep in step."""
        return self.round_ms * (2 + self.place) * tries // 2

    def process_of(self, view: int) -> NodeId:
        """The process that acts in a view; empty when the master has none at that place."""
        place = place_of(view)
        return self.processes[place] if place < len(self.processes) else ""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What a process has become."""

    state: RoleState
    """PRIMARY, STANDBY or IDLE."""
    view: int
    """The view that it is primary of; else the highest one that it knows of."""
    reason: str


@dataclass(frozen=True, slots=True)
class RoleReady:
    """What a role asks of the world, in the order in which it must happen."""

    promise: int = 0
    """View to be promised durably, before anything else of this is done; 0 when there is none."""
    messages: tuple[Outgoing, ...] = ()
    """To be sent after that."""
    look: NodeId = ""
    """A primary of which the broker is to be asked whether its process is there."""
    change: RoleChange | None = None
    """After that: what the process is from now on. Each change is told once."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.promise or self.messages or self.look or self.change)
