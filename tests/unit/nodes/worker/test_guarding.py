"""What a worker does when its memory grows, and when reads or writes never come back."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from brokerha.nodes.config.cluster import load_config
from brokerha.nodes.worker.guarding import MIB, Guard, Seen, machine_memory_bytes, own_memory_bytes
from brokerha.nodes.worker.limits import GuardLimits

WELL = Seen(is_damaged=False, store_busy_s=0, idle_s=0, reads_left=0)
LIMITS = GuardLimits(memory_bytes=100 * MIB, store_patience_s=300, grace_s=5)


class Memory:
    """Memory of a process that does not exist."""

    def __init__(self, mib: int) -> None:
        self.mib = mib

    def __call__(self) -> int:
        return self.mib * MIB


def test_it_looks_once_a_second() -> None:
    guard = Guard(LIMITS, "w1", Memory(1))
    assert guard.is_due(7.0)
    guard.look(7.0, WELL)
    assert not guard.is_due(7.9)
    assert guard.is_due(8.0)


def test_memory_over_the_limit_is_a_reason_to_leave_and_half_of_it_a_warning_each_once() -> None:
    memory = Memory(40)
    guard = Guard(LIMITS, "w1", memory)
    with capture_logs() as lines:
        for now_s, mib in enumerate([40, 60, 70, 101, 120]):
            memory.mib = mib
            guard.look(now_s, WELL)
    assert [line["log_level"] for line in lines] == ["warning", "error"]
    assert guard.must_restart == guard.over_memory == "the process takes 120 MiB of 100 MiB (memory-limit-mb)"


def test_memory_that_is_free_again_is_no_reason_any_more() -> None:
    memory = Memory(101)
    guard = Guard(LIMITS, "w1", memory)
    guard.look(0, WELL)
    assert guard.must_restart
    memory.mib = 30
    guard.look(1, WELL)
    assert (guard.must_restart, guard.over_memory) == ("", "")


def test_without_a_limit_memory_is_of_no_interest_any_more() -> None:
    guard = Guard(GuardLimits(memory_bytes=0), "w1", Memory(1_000_000))
    guard.look(0, WELL)
    assert guard.must_restart == ""
    guard.limits = LIMITS
    guard.look(1, WELL)
    assert guard.must_restart == guard.over_memory != ""
    guard.limits = GuardLimits(memory_bytes=0)
    guard.look(2, WELL)
    assert (guard.must_restart, guard.over_memory) == ("", "")


def test_reads_that_go_on_after_damage_was_found_end_the_process_but_not_at_once() -> None:
    guard = Guard(LIMITS, "w1", Memory(1))
    left = Seen(is_damaged=True, store_busy_s=0, idle_s=0, reads_left=2)
    guard.look(10, left)
    guard.look(14, left)
    assert guard.must_restart == ""
    # One that came back in between makes no difference to the others, but all of them do.
    guard.look(14.5, WELL)
    guard.look(15, left)
    guard.look(19, left)
    assert guard.must_restart == ""
    guard.look(20, left)
    assert guard.must_restart.startswith("2 reads go on although damage was found")
    assert guard.over_memory == ""


@pytest.mark.parametrize(
    ("is_damaged", "mib", "busy_s", "ends"),
    [(True, 1, 301, True), (False, 51, 301, True), (False, 1, 3000, False), (True, 51, 299, False)],
)
def test_a_write_that_never_comes_back_ends_the_process_only_when_something_is_wrong_besides(
    is_damaged: bool, mib: int, busy_s: float, ends: bool
) -> None:
    guard = Guard(LIMITS, "w1", Memory(mib))
    guard.look(0, Seen(is_damaged, busy_s, 0, 0))
    assert bool(guard.must_restart) is ends


def test_a_write_that_only_waits_ends_the_process_although_nothing_else_is_wrong() -> None:
    guard = Guard(LIMITS, "w1", Memory(1))
    guard.look(0, Seen(is_damaged=False, store_busy_s=299, idle_s=299, reads_left=0))
    assert guard.must_restart == ""
    guard.look(1, Seen(is_damaged=False, store_busy_s=301, idle_s=301, reads_left=0))
    assert guard.must_restart == "the store has not come back for 301 s, and does nothing"


def test_own_memory_grows_with_what_is_held_and_not_with_files() -> None:
    before = own_memory_bytes()
    # Not from malloc, which gives out again what tests before this one have freed.
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for place in range(0, len(held), mmap.PAGESIZE):
            held[place] = 1
        assert before + 60 * MIB < own_memory_bytes() < before + 80 * MIB
    assert before < machine_memory_bytes()


def test_the_limit_is_a_share_of_the_machine_unless_the_file_says_another(tmp_path: Path) -> None:
    def limit(line: str) -> int:
        file = tmp_path / "cluster.toml"
        file.write_text(f'[cluster]\nname = "c"\nbroker = "embedded://"\n{line}\n[[master]]\nid = "m1"\n', encoding="utf-8")
        return load_config(file, {}).guard_limits(workers=3, machine_bytes=4000 * MIB).memory_bytes

    assert limit("") == 1000 * MIB
    assert limit("memory-limit-mb = 700") == 700 * MIB
    assert limit("memory-limit-mb = 0") == 0
