"""A copy that is built in bulk from the state at an LSN cannot be told from one that applied the lines up to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.model.errors import StoreDamaged, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operations import ControlRemove, pack_operations
from brokerha.stores.backup import building
from brokerha.stores.backup.building import CopyBuilder
from brokerha.stores.tables.queue_change import Counts, Message
from tests.support.memory_store.image import MemoryImage, MemoryQueue
from tests.unit.stores.built_copies import build, everything, history, opened

COUNT = 250


@pytest.mark.parametrize("seed", range(4))
def test_a_built_copy_holds_row_by_row_what_one_holds_that_applied_the_lines(tmp_path: Path, seed: int) -> None:
    lines = history(seed, COUNT)
    applied = opened(tmp_path / "applied")
    lsn = 0
    for upto in (1, 90, COUNT):
        applied.apply(lsn + 1, lines[lsn:upto])
        lsn = upto
        found = build(tmp_path / str(upto), lines[:upto])
        assert found == applied.applied()
        built = opened(tmp_path / str(upto))
        assert built.recompute() == built.applied() == found
        assert everything(built) == everything(applied)
        assert built.logged_from() == max(upto - 2, 1)
        assert built.logged(built.logged_from(), COUNT + 1) == lines[max(upto - 3, 0) : upto]
        built.close()
    applied.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_built_copy_applies_and_executes_what_comes_next_without_a_difference(tmp_path: Path, seed: int) -> None:
    lines = history(seed, COUNT)
    build(tmp_path / "built", lines[:100])
    built, applied = opened(tmp_path / "built"), opened(tmp_path / "applied")
    applied.apply(1, lines)
    for first in range(100, COUNT, 30):
        built.apply(first + 1, lines[first : first + 30])
    assert built.applied() == built.recompute() == applied.applied()
    update = pack_operations([("publish", "p", "text/plain", b"new"), ("update", "main", "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }")])
    assert built.execute(COUNT + 1, [("next", 1, update)]) == applied.execute(COUNT + 1, [("next", 1, update)])
    assert everything(built) == everything(applied)
    built.close()
    # What it holds was durable in its engines from the start: a start asks for no line that it does not have.
    again = opened(tmp_path / "built")
    assert again.applied() == again.recompute() == applied.applied()
    again.close()
    applied.close()


def test_the_copy_of_no_lines_is_the_empty_one(tmp_path: Path) -> None:
    assert build(tmp_path / "built", []).fingerprint == text_of(EMPTY)
    built, fresh = opened(tmp_path / "built"), opened(tmp_path / "fresh")
    assert everything(built) == everything(fresh)
    assert (built.applied(), built.logged_from()) == (fresh.applied(), fresh.logged_from())
    built.close()
    fresh.close()


def _lose_a_quad(image: MemoryImage) -> None:
    next(lines for lines in image.repositories.values() if lines).pop()


def _change_a_key(image: MemoryImage) -> None:
    image.keys[min(image.keys)] += b"!"


def _move_a_message(image: MemoryImage) -> None:
    queue = next(queue for queue in image.queues.values() if queue.messages)
    (message_id, (place, message)) = next(iter(queue.messages.items()))
    queue.messages[message_id] = place + 1000, message


def _miscount_a_queue(image: MemoryImage) -> None:
    name = next(iter(image.queues))
    published, accepted = image.queues[name].counts
    image.queues[name] = MemoryQueue(Counts(published + 1, accepted + 1), image.queues[name].messages)


def _forget_a_repository(image: MemoryImage) -> None:
    image.repositories = {name: lines for name, lines in image.repositories.items() if name != "main"}


def _forget_a_check(image: MemoryImage) -> None:
    suite = image.suite
    name = next(iter(suite.checks))
    image.suite = suite.changed(ControlRemove("control-remove", name))


@pytest.mark.parametrize(
    "spoil", [_lose_a_quad, _change_a_key, _move_a_message, _miscount_a_queue, _forget_a_repository, _forget_a_check]
)
def test_content_that_is_not_what_was_logged_is_refused_with_both_fingerprints(tmp_path: Path, spoil) -> None:
    lines = history(5, COUNT)
    with pytest.raises(StoreDiffers, match=f"LSN {COUNT} has fingerprint 1:.* the log says ") as found:
        build(tmp_path / "built", lines, spoil=spoil)
    assert text_of(lines[-1].fingerprint) in str(found.value)


def test_quads_that_are_more_than_one_bulk_load_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "LOAD_QUADS", 7)
    monkeypatch.setattr(building, "LINES_AT_ONCE", 2)
    lines = history(0, 150)
    assert build(tmp_path / "built", lines).fingerprint == text_of(lines[-1].fingerprint)


def test_keys_out_of_order_are_a_fault(tmp_path: Path) -> None:
    builder = CopyBuilder(tmp_path / "copy", cluster="orders", node="w1", lsn=1, map_size_bytes=1 << 24)
    for rows in ([(b"t\0b", b""), (b"t\0a", b"")], [(b"t\0c", b""), (b"t\0c", b"")]):
        with pytest.raises(InvariantBroken, match="rows are given in order"):
            builder.keys(rows)
    builder.close()


def test_what_is_no_quad_is_damage_of_what_was_given(tmp_path: Path) -> None:
    builder = CopyBuilder(tmp_path / "copy", cluster="orders", node="w1", lsn=1, map_size_bytes=1 << 24)
    with pytest.raises(StoreDamaged, match="no quad of the log"):
        builder.repository("main", ["<urn:a> <urn:b>"])
    builder.close()


def test_a_full_store_is_one_error_that_says_so(tmp_path: Path) -> None:
    builder = CopyBuilder(tmp_path / "copy", cluster="orders", node="w1", lsn=1, map_size_bytes=1 << 20)
    with pytest.raises(StoreError, match="largest size"):
        builder.messages(("q", place, Message(f"t{place}.1", "", bytes(500_000))) for place in range(1, 9))
    builder.close()


def test_a_copy_is_built_in_an_empty_directory_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(StoreError, match="not empty"):
        CopyBuilder(tmp_path, cluster="orders", node="w1", lsn=1)
