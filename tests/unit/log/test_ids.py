"""Known ids: what came last in memory, the rest in sorted files that are merged in steps; compared with a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from brokerha.log import ids as ids_module
from brokerha.log.disks import MemoryDisk
from brokerha.log.ids import Ids
from brokerha.model.errors import JournalDamaged
from brokerha.model.forgetting import forgetting_id, forgotten_below, is_forgetting
from brokerha.model.records import Added, IdsTaken, Remembered, Rewound
from tests.support.logs import memory_log, reopened


def pages(ids: Ids, up_to: int, limit: int) -> list[Remembered]:
    found = [ids.page(b"", up_to, limit)]
    while found[-1].next_cursor:
        found.append(ids.page(found[-1].next_cursor, up_to, limit))
    return found


@dataclass
class Queue:
    """What ids must say of a queue: its ids in their order, found by looking through all of them."""

    ids: list[str] = field(default_factory=list)
    why: dict[int, str] = field(default_factory=dict)
    first_lsn: int = 1

    def floor(self, end: int) -> int:
        return max([forgotten_below(txid) for txid in self.ids[:end] if is_forgetting(txid)], default=0)

    def check(self, ids: Ids, choose: Random) -> None:
        """The log only ever goes back to what it holds."""
        for end in {len(self.ids), self.first_lsn - 1, choose.randint(self.first_lsn - 1, len(self.ids))}:
            floor = self.floor(end)
            assert ids.floor(end) == floor
            newest = {txid: lsn for lsn, txid in enumerate(self.ids[:end], 1)}
            wanted = {txid: lsn for txid, lsn in newest.items() if lsn >= floor}
            found = {txid: ids.find(txid, end) for txid in {*self.ids, "never", "too"}}
            assert {txid: lsn for txid, lsn in found.items() if lsn is not None and lsn >= floor} == wanted
            of_pages = [row for page in pages(ids, end, 7) for row in page.ids]
            assert sorted(of_pages) == sorted(wanted.items())
            reasons = dict(row for page in pages(ids, end, 7) for row in page.rejections)
            assert reasons == {lsn: self.why[lsn] for lsn in wanted.values() if lsn in self.why}
        known = {lsn: ids.rejection(lsn) for lsn in range(max(1, self.floor(self.first_lsn - 1)), len(self.ids) + 9)}
        assert known == {lsn: self.why.get(lsn) for lsn in known}


def take_in_vain(ids: Ids, choose: Random, queue: Queue) -> None:
    """Ids come with pages of a state, and the queue does not lead to it any more."""
    end = len(queue.ids)
    names = sorted({*queue.ids, *(f"new-{end}-{n}" for n in range(6)), forgetting_id(end + 1)})
    taken = {txid: end + 1 + n for n, txid in enumerate(choose.sample(names, min(8, len(names))))}
    ids.note(taken)
    ids.rejected.update(dict.fromkeys(taken.values(), "elsewhere"))
    if choose.random() < 0.7:
        ids.flush()
    if choose.random() < 0.5:
        ids.merge_some()
    ids.void_after(end)


def step(ids: Ids, choose: Random, queue: Queue, seed: int) -> None:
    """Take one random step with ids and model."""
    action, end, floor = choose.random(), len(queue.ids), queue.floor(len(queue.ids))
    if action < 0.6:
        entries: list[str] = []
        for n in range(choose.randint(1, 6)):
            again = sorted(
                {txid for txid in queue.ids[:floor] if not is_forgetting(txid)}.difference(queue.ids[max(0, floor - 1) :], entries)
            )
            entries.append(choose.choice(again) if again and choose.random() < 0.5 else f"id-{seed}-{end + n}")
        ids.add(end + 1, [(0, txid, "m1") for txid in entries])
        queue.ids += entries
        for lsn in range(end + 1, end + len(entries) + 1):
            queue.why.pop(lsn, None)
            if choose.random() < 0.2:
                ids.rejected[lsn] = queue.why[lsn] = f"no place for {lsn} of {end}"
    elif action < 0.7:
        back = choose.randint(max(queue.first_lsn - 1, end - 12), end)
        ids.void_after(end)
        ids.go_back(set(queue.ids[back:]), back)
        ids.void_rejections(back, end)
        del queue.ids[back:]
        queue.why = {lsn: reason for lsn, reason in queue.why.items() if lsn <= back}
    elif action < 0.72:
        take_in_vain(ids, choose, queue)
    elif action < 0.77:
        queue.first_lsn = choose.randint(queue.first_lsn, end + 1)
        ids.forget(queue.first_lsn)
    elif action < 0.82 and queue.first_lsn > floor + 4:
        txid = forgetting_id(choose.randint(max(floor + 4, queue.first_lsn // 2), queue.first_lsn))
        ids.add(end + 1, [(0, txid, "m1")])
        queue.ids.append(txid)
    elif action < 0.95:
        ids.merge_some()
    if ids.is_full:
        ids.flush()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_it_says_what_looking_through_the_queue_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MERGED_AT_ONCE", 5)
    choose = Random(seed)
    disk, queue = MemoryDisk(), Queue()
    ids = Ids(disk, "1", held=choose.choice((4, 10, 40)))
    for number in range(200):
        step(ids, choose, queue, seed)
        if number % 8 == 0:
            again = Ids(disk, "1", held=10)
            again.read(ids.packed())
            queue.check(again, choose)
            queue.check(ids, choose)
            assert list(ids.problems()) == []
    while ids.merge_some():
        pass
    assert len(ids.runs) < 10
    queue.check(ids, choose)
    assert queue.floor(len(queue.ids)) > 20
    assert len(set(queue.ids)) < len(queue.ids)


def test_a_run_that_is_not_what_was_written_is_damage() -> None:
    disk = MemoryDisk()
    ids = Ids(disk, "1")
    ids.add(1, [(0, f"t{n}", "m1") for n in range(300)])
    ids.flush()
    packed = ids.packed()
    file = disk.files["1/ids-00000001"]
    blocks = ids.runs[0].places[-1]
    for offset in range(blocks, len(file), 5):
        file[offset] ^= 1
        with pytest.raises(JournalDamaged, match="ids-00000001: this node's copy is damaged"):
            Ids(disk, "1").read(packed)
        file[offset] ^= 1
    again = Ids(disk, "1")
    again.read(packed)
    for offset in range(0, blocks, 7):
        file[offset] ^= 4
        assert len(list(again.problems())) == 1, offset
        file[offset] ^= 4
    assert list(again.problems()) == []
    file[blocks // 2] ^= 4
    with pytest.raises(JournalDamaged, match="of the ids that are known are not what was written"):
        [again.find(f"t{n}") for n in range(300)]


def test_a_merge_that_a_checkpoint_interrupts_keeps_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MERGED_AT_ONCE", 5)
    disk = MemoryDisk()
    ids = Ids(disk, "1", held=10)
    for run in range(4):
        ids.add(1 + 10 * run, [(0, f"t{run}-{n}", "m1") for n in range(10)])
        ids.flush()
    assert ids.making() == []
    assert ids.merge_some()
    assert ids.making() == ["1/ids-00000005"]
    assert "1/ids-00000005" not in ids.files()
    while ids.merge_some():
        pass
    assert ids.making() == []
    assert ids.files() == ["1/ids-00000005"]


def test_two_ids_with_one_hash_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "hash_of", len)
    monkeypatch.setattr(ids_module, "MERGED_AT_ONCE", 2)
    ids = Ids(MemoryDisk(), "1", held=10)
    for run in range(4):
        ids.add(1 + 100 * run, [(0, f"t{n:03}", "m1") for n in range(70 * run, 70 * run + 100)])
        ids.flush()
    wanted = {f"t{n:03}": 1 + 100 * run + n - 70 * run for run in range(4) for n in range(70 * run, 70 * run + 100)}
    for _ in range(2):
        assert {txid: ids.find(txid) for txid in wanted} == wanted
        assert sorted(row for page in pages(ids, 10**9, 7) for row in page.ids) == sorted(wanted.items())
        while ids.merge_some():
            pass
    assert len(ids.runs) == 1


def test_what_a_full_disk_cut_short_takes_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MERGED_AT_ONCE", 200)
    disk = MemoryDisk()
    ids = Ids(disk, "1")
    for first in range(1, 1201, 300):
        ids.add(first, [(0, f"id-{first + n}", "m1") for n in range(300)])
        ids.flush()
    whole = disk.names()
    # When the disk is full in the middle of a merge, and when memory should become a run
    assert ids.merge_some()
    disk.is_full = True
    with pytest.raises(OSError, match="no space"):
        ids.merge_some()
    assert disk.names() == whole
    ids.add(1201, [(0, f"id-{1201 + n}", "m1") for n in range(300)])
    monkeypatch.setattr(disk, "create", lambda name, _reserve=0: disk.files.update({name: bytearray()}))
    with pytest.raises(OSError, match="no space"):
        ids.flush()
    assert disk.names() == whole
    # Then all of it is done once there is space
    disk.is_full = False
    ids.flush()
    while ids.merge_some():
        pass
    assert [ids.find(f"id-{lsn}") for lsn in range(1, 1501)] == [*range(1, 1501)]


@pytest.mark.parametrize("held", [1, 1000])
def test_ids_of_a_state_that_was_not_reached_are_void_once_the_queue_went_back(held: int) -> None:
    # Given pages of the state of a master that had a longer queue, in memory or in a run
    log = memory_log("m1", "journal-of-m1", ids_held=held)
    log.append([IdsTaken((("t", 6500), ("u", 6501)), ((6501, "no"),))])
    log.append([Added(1, ((10, "a", "m2"),), {}, 1)])
    assert log.lsn_of("t") == 6500
    # When sides of a split come together
    log.append([Rewound(1, 1, 2, keeps_content=False)])
    # Then these transactions may come again, with other LSNs
    for found in (log, reopened(log)):
        assert [found.lsn_of(txid) for txid in ("t", "u", "a")] == [None, None, 1]
        assert found.known(["t", "u", "a"]) == {"a": 1}
    log.append([Added(2, ((20, "t", "m2"),), {}, 2)])
    assert log.lsn_of("t") == reopened(log).lsn_of("t") == 2
