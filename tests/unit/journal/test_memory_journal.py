"""What only the journal in memory has: images."""

from __future__ import annotations

from brokerha.journal.memory_journal import MemoryJournal
from tests.unit.journal.turns import Author, everything, filled

IDS = [f"t{n}" for n in range(1, 8)]


def test_an_image_does_not_change_when_the_journal_goes_on() -> None:
    journal = MemoryJournal("m1", "name")
    author = filled(journal, turns=3)
    image = journal.image()
    before = everything(MemoryJournal.from_image(image), IDS, ["m1", "m2"])
    filled(journal, turns=2, author=author)
    journal.append([author.hold("m2", "x"), author.append("m2", "x")])
    journal.trim(4)
    journal.forget_ids(4)
    assert everything(MemoryJournal.from_image(image), IDS, ["m1", "m2"]) == before


def test_an_image_may_be_used_many_times() -> None:
    journal = MemoryJournal("m1", "name")
    filled(journal, turns=2)
    image = journal.image()
    first = MemoryJournal.from_image(image)
    author = Author("m1", "m2")
    author.whole("t1"), author.whole("t2")
    filled(first, turns=2, author=author)
    assert MemoryJournal.from_image(image).state().lsn == 2
    assert (first.state().lsn, first.state().journal) == (4, "name")
