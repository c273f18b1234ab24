"""Known ids: what came last in memory, the rest in sorted files that are merged in steps; compared with a dictionary."""

from __future__ import annotations

from random import Random

import pytest

from brokerha.log import ids as ids_module
from brokerha.log.disks import MemoryDisk
from brokerha.log.ids import Ids
from brokerha.model.errors import JournalDamaged
from brokerha.model.records import Remembered


def pages(ids: Ids, up_to: int, limit: int) -> list[Remembered]:
    found = [ids.page(b"", up_to, limit)]
    while found[-1].next_cursor:
        found.append(ids.page(found[-1].next_cursor, up_to, limit))
    return found


def checked(ids: Ids, lsns: dict[str, int], why: dict[int, str]) -> None:
    assert {txid: ids.find(txid) for txid in lsns} == lsns
    assert [ids.find(f"never-{n}") for n in range(20)] == [None] * 20
    assert {lsn: ids.rejection(lsn) for lsn in range(1, 500)} == {lsn: why.get(lsn) for lsn in range(1, 500)}
    found = pages(ids, 10**9, 7)
    assert sorted(row for page in found for row in page.ids) == sorted(lsns.items())
    assert {lsn: reason for page in found for lsn, reason in page.rejections}.items() <= why.items()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_it_says_what_a_dictionary_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "MERGED_AT_ONCE", 5)
    choose = Random(seed)
    disk = MemoryDisk()
    ids = Ids(disk, "1", held=10)
    lsns: dict[str, int] = {}
    why: dict[int, str] = {}
    lsn = 0
    for step in range(250):
        action = choose.random()
        if action < 0.6:
            entries = [(0, f"id-{seed}-{lsn + n}", "m1") for n in range(choose.randint(1, 6))]
            ids.add(lsn + 1, entries)
            for _, txid, _ in entries:
                lsn += 1
                lsns[txid] = lsn
                if choose.random() < 0.2:
                    ids.rejected[lsn] = why[lsn] = f"no place for {lsn}"
        elif action < 0.7 and lsns:
            back = max(lsn - choose.randint(0, 8), 0)
            gone = [txid for txid, at in lsns.items() if at > back]
            ids.lsns.update(dict.fromkeys(gone, 0))
            ids.void_rejections(back, lsn)
            lsns = {txid: at for txid, at in lsns.items() if at <= back}
            why = {at: reason for at, reason in why.items() if at <= back}
            lsn = back
        elif action < 0.75:
            below = choose.randint(0, max(0, lsn - 30))
            ids.forget(below)
            lsns = {txid: at for txid, at in lsns.items() if at >= below}
            why = {at: reason for at, reason in why.items() if at >= below}
        elif action < 0.95:
            ids.merge_some()
        if ids.is_full:
            ids.flush()
        if step % 10 == 0:
            packed = ids.packed()
            again = Ids(disk, "1", held=10)
            again.read(packed)
            checked(again, lsns, why)
            checked(ids, lsns, why)
            assert list(ids.problems()) == []
    while ids.merge_some():
        pass
    assert len(ids.runs) < 10
    checked(ids, lsns, why)


def test_a_run_that_is_not_what_was_written_is_damage() -> None:
    disk = MemoryDisk()
    ids = Ids(disk, "1")
    ids.add(1, [(0, f"t{n}", "m1") for n in range(300)])
    ids.flush()
    packed = ids.packed()
    for offset in range(0, 24 + 8 * 300, 50):
        disk.files["1/ids-00000001"][offset] ^= 1
        with pytest.raises(JournalDamaged, match="ids-00000001: this node's copy is damaged"):
            Ids(disk, "1").read(packed)
        disk.files["1/ids-00000001"][offset] ^= 1
    again = Ids(disk, "1")
    again.read(packed)
    rows = 24 + 8 * 300
    # Behind the rows one more says where the last key ends.
    for offset in [*range(rows, rows + 20 * 300, 7), *range(rows + 20 * 301, len(disk.files["1/ids-00000001"]))]:
        disk.files["1/ids-00000001"][offset] ^= 4
        problems = list(again.problems())
        assert problems, offset
        disk.files["1/ids-00000001"][offset] ^= 4
