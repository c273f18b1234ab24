"""A handful of sync cores on a table: posts lie in a list until the test delivers them, time passes when it says so.

table = Table(3)
table.write("m1", "A")
table.settle()
assert table.queue("m1") == ["A"]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from brokerha.model.ids import Instant
from brokerha.model.records import Started
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing, Post
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from tests.support.logs import memory_log

AnyMessage = TypeVar("AnyMessage")
START_US = 1_000_000_000
Choice = Callable[[str, Outgoing], bool]


class Table:
    """Masters m1 … mN, what they wrote, and what is under way between them."""

    def __init__(self, masters: int = 3, **settings: object) -> None:
        self.names = tuple(f"m{n}" for n in range(1, masters + 1))
        self.now = Instant(1000, START_US)
        self.skew_us = dict.fromkeys(self.names, 0)
        self.settings = settings
        self.journals = {name: memory_log(name, f"journal-of-{name}") for name in self.names}
        self.cores: dict[str, SyncCore] = {}
        self.mail: list[tuple[str, Outgoing]] = []
        self.sent: list[tuple[str, Outgoing]] = []
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> SyncCore:
        """Start a master from its journal."""
        state = self.journals[name].state()
        state.incarnation += 1
        self.journals[name].append([Started(state.incarnation)])
        config = SyncConfig(node=name, members=self.names, **self.settings)  # type: ignore[arg-type]
        self.cores[name] = SyncCore(config, state, self.journals[name])
        return self.cores[name]

    def crash(self, name: str) -> None:
        """Stop a master at once; what was under way to it is lost."""
        del self.cores[name]
        self.mail = [(sender, out) for sender, out in self.mail if out.to != name]

    def instant(self, name: str) -> Instant:
        """The clocks of one master."""
        return replace_wall(self.now, self.now.wall_us + self.skew_us[name])

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.now = Instant(self.now.mono_ms + milliseconds, self.now.wall_us + milliseconds * 1000)

    def write(self, name: str, *txids: str, body: bytes = b"") -> None:
        """Hand transactions to a master; nothing happens before its next round."""
        for txid in txids:
            self.cores[name].accept(txid, body or txid.encode())

    def round(self, *names: str) -> None:
        """Run one round of these masters (all when none is named): write first, then put messages on the table."""
        for name in names or tuple(self.cores):
            result = self.cores[name].collect(self.instant(name))
            if result.records:
                self.journals[name].append(result.records)
            letters = [(name, out) for out in result.messages if out.to in self.cores]
            self.mail.extend(letters)
            self.sent.extend((name, out) for out in result.messages)

    def deliver(self, choice: Choice = lambda _sender, _out: True) -> int:
        """Deliver what is under way and chosen, in order; the rest stays on the table."""
        chosen = [letter for letter in self.mail if choice(*letter)]
        self.mail = [letter for letter in self.mail if not choice(*letter)]
        for sender, out in chosen:
            core = self.cores.get(out.to)
            if core is None:
                continue
            if isinstance(out.message, Post):
                core.on_post(sender, out.message, self.instant(out.to))
            elif isinstance(out.message, Bodies):
                core.on_bodies(sender, out.message)
            elif isinstance(out.message, Fetch):
                core.on_fetch(sender, out.message)
            else:
                core.epochs.on_message(core, sender, out.message, self.instant(out.to))
        return len(chosen)

    def lose(self, choice: Choice = lambda _sender, _out: True) -> None:
        """Lose what is under way and chosen."""
        self.mail = [letter for letter in self.mail if not choice(*letter)]

    def settle(self, turns: int = 40, step_ms: int = 1, choice: Choice = lambda _sender, _out: True) -> None:
        """Rounds and deliveries until nothing moves, or for ``turns``."""
        for _ in range(turns):
            self.round()
            self.deliver(choice)
            self.lose(lambda s, o: not choice(s, o))
            self.pass_ms(step_ms)
        self.round()

    def queue(self, name: str) -> list[str]:
        """Transaction ids of a master's synchronised queue."""
        return [txid for _, txid, _ in self.journals[name].ordered(1, 10**6)]

    def incoming(self, name: str) -> list[str]:
        """Transaction ids of a master's incoming queue."""
        return [entry[1] for entry in self.cores[name].incoming]

    def posts(self, sender: str, to: str) -> list[Post]:
        """All posts that were ever sent from one to another."""
        return [o.message for s, o in self.sent if s == sender and o.to == to and isinstance(o.message, Post)]

    def messages(self, kind: type[AnyMessage], sender: str = "", to: str = "") -> list[AnyMessage]:
        """All messages of a kind that were ever sent, by one or to one if it is named."""
        letters = [o for s, o in self.sent if sender in {"", s} and to in {"", o.to}]
        return [out.message for out in letters if isinstance(out.message, kind)]


def without(*names: str) -> Choice:
    """Nothing passes to or from these."""
    return lambda sender, out: sender not in names and out.to not in names


def replace_wall(now: Instant, wall_us: int) -> Instant:
    """The same moment by another wall clock."""
    return Instant(now.mono_ms, wall_us)


def with_row(post: Post, **changes: object) -> Post:
    """A post whose row says something else."""
    return replace(post, row=replace(post.row, **changes))  # type: ignore[arg-type]
