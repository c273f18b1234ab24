"""What a worker's copy must do about what it keeps of its content, and about the lineage of the log that it followed.

Fixtures are those of copy_contract.py; test_copies.py runs it on each kind of copy.
"""

from __future__ import annotations

import pytest

from brokerha.model.errors import StoreError, StoreFull
from brokerha.model.operations import Logged, LoggedRow
from tests.contracts.copy_contract import Open, Reopen, carry, changed_since, content, filled
from tests.contracts.store_contract import C, quads, rows, run


class KeptContract:
    """Tests of keeping, restoring and dropping."""

    def test_what_is_kept_stays_at_its_moment_and_survives_a_restart(self, opened: Open, reopened: Reopen) -> None:
        copy = opened("w1")
        filled(copy)
        copy.begin_lineage(3)
        then = copy.applied()
        assert copy.kept is None
        kept = copy.keep(7)
        assert (kept.number, kept.lsn, kept.lineage, kept.fingerprint, kept.items) == (7, then.lsn, 3, *then[1:])
        assert kept.size_bytes > 0
        run(copy, [("put", "t", b"k", b"later")])
        # The same order again keeps nothing anew
        assert copy.keep(7) == kept
        copy = reopened(copy)
        assert copy.kept == kept
        assert copy.applied().lsn == then.lsn + 1

    def test_what_was_kept_comes_back_with_everything_under_a_new_name(self, opened: Open, reopened: Reopen) -> None:
        copy, other = opened("w1"), opened("w2")
        filled(copy)
        filled(other)
        then, since = content(copy), changed_since(other)
        copy.begin_lineage(3)
        copy.keep(1)
        run(copy, [("add", "main", quads(C)), ("delete", "t", b"k")], [("remove-repository", "s")])
        run(copy, [("publish", "q", "", b"3"), ("put", "u", b"x", b"")])
        copy.begin_lineage(5)
        name = copy.journal
        # Twice, and with a restart in between: what is kept is not used up
        for _ in range(2):
            copy.restore_kept()
            assert content(copy) == then
            assert copy.recompute() == copy.applied()
            assert copy.lineage == 3
            assert copy.journal != name
            name = copy.journal
            assert changed_since(copy) == since
            copy = reopened(copy)
            assert copy.journal == name
        assert copy.kept is not None
        copy.restore_kept()
        run(other, [("put", "t", b"next", b"1")])
        run(copy, [("put", "t", b"next", b"1")])
        assert rows(copy, "t") == rows(other, "t")

    def test_a_restored_copy_has_the_last_lines_and_takes_the_next_one(self, opened: Open) -> None:
        copy = opened("w1")
        filled(copy)
        copy.keep(1)
        lsn = copy.applied().lsn
        run(copy, [("put", "t", b"later", b"")])
        line: LoggedRow = Logged(*copy.logged(lsn + 1, lsn + 1)[0])
        last = copy.logged(lsn, lsn)
        copy.restore_kept()
        assert copy.logged(lsn, lsn) == last
        assert copy.logged(lsn + 1, lsn + 1) == []
        copy.apply(lsn + 1, [line])
        assert copy.applied().lsn == lsn + 1

    def test_one_copy_is_kept_and_keeping_again_takes_its_place(self, opened: Open, reopened: Reopen) -> None:
        copy = opened("w1")
        copy.keep(1)
        filled(copy)
        then = content(copy)
        assert copy.keep(2).number == 2
        run(copy, [("put", "t", b"k", b"later")])
        copy = reopened(copy)
        assert copy.kept is not None
        assert copy.kept.number == 2
        copy.restore_kept()
        assert content(copy) == then

    def test_what_is_dropped_is_gone(self, opened: Open, reopened: Reopen) -> None:
        copy = opened("w1")
        filled(copy)
        copy.keep(1)
        copy.drop_kept()
        copy.drop_kept()
        assert copy.kept is None
        before = content(copy), copy.journal
        with pytest.raises(StoreError, match="no copy is kept"):
            copy.restore_kept()
        copy = reopened(copy)
        assert copy.kept is None
        assert (content(copy), copy.journal) == before

    def test_an_empty_copy_can_be_kept(self, opened: Open, reopened: Reopen) -> None:
        copy = opened("w1")
        assert copy.keep(1).lsn == 0
        filled(copy)
        copy = reopened(copy)
        copy.restore_kept()
        assert copy.applied().lsn == 0
        filled(copy)
        assert copy.recompute() == copy.applied()

    def test_keeping_without_space_leaves_what_was_kept(self, opened: Open, free_bytes: list[int]) -> None:
        copy = opened("w1")
        filled(copy)
        kept = copy.keep(1)
        run(copy, [("put", "t", b"k", b"later")])
        free_bytes[0] = 123
        with pytest.raises(StoreFull, match=r"no space for the copy to keep: it needs [\d,]+ bytes.*, 123 are free"):
            copy.keep(2)
        with pytest.raises(StoreFull, match=r"no space for the kept copy"):
            copy.restore_kept()
        assert copy.kept == kept
        free_bytes[0] = 1 << 40
        assert copy.keep(2).lsn == kept.lsn + 1

    def test_restoring_gives_up_a_load_and_forgives_what_was_condemned(self, opened: Open, reopened: Reopen) -> None:
        source, copy = opened("w1"), opened("w2")
        filled(source)
        run(copy, [("put", "t", b"other", b"")])
        copy.keep(1)
        copy.condemn("told so")
        carry(source, copy)
        copy.restore_kept()
        assert (copy.pending_load, copy.condemned) == ("", "")
        assert rows(copy, "t") == [(b"other", b"")]
        assert reopened(copy).condemned == ""

    def test_a_load_brings_the_lineage_of_its_source_and_leaves_what_is_kept(self, opened: Open) -> None:
        source, follower = opened("w1"), opened("w2")
        filled(source)
        source.begin_lineage(4)
        kept = follower.keep(1)
        assert follower.lineage == 0
        carry(source, follower)
        follower.open_load()
        assert follower.lineage == 4
        assert follower.kept == kept
        follower.restore_kept()
        assert (follower.lineage, follower.applied().lsn) == (0, 0)

    def test_the_lineage_survives_a_restart(self, opened: Open, reopened: Reopen) -> None:
        copy = opened("w1")
        copy.begin_lineage(6)
        run(copy, [("put", "t", b"k", b"")])
        copy = reopened(copy)
        assert copy.lineage == 6
        assert copy.applied().lsn == 1
