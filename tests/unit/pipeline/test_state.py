"""The state at an LSN, folded from entries: equal to what a store has that executed them."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerha.model.errors import StoreDiffers
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.model.operations import APPLIED, unpack_effect
from brokerha.pipeline.state import Bucket, State, buckets_of, differing, state_at
from brokerha.stores.log_pages import LinesMissing
from brokerha.stores.memory import MemoryStore
from tests.unit.pipeline.random_log import random_entries, random_store


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), transactions=st.integers(1, 120))
def test_the_fold_of_any_log_has_the_fingerprint_of_each_line_and_holds_what_the_store_holds(
    seed: int, transactions: int
) -> None:
    store, entries = random_store(seed, transactions)
    state = State()
    for entry in entries:
        state.take(entry)
        assert state.fingerprint == entry.fingerprint
        assert state.recomputed() == entry.fingerprint
    assert text_of(state.fingerprint) == store.applied().fingerprint
    content = [held for held in state.items.values() if held.store != "control" and (held.store != "graph" or held.key)]
    assert len(content) == store.applied().items
    assert keys_of(state, "t") == read(store, "range", "t")
    assert {name: count.report() for name, count in state.counts.items()} == queues_of(store)


def test_the_random_logs_hold_every_kind_of_change_and_drop_and_make_repositories_again() -> None:
    entries = random_entries(7, 1500)
    changes = [change for entry in entries for change in unpack_effect(entry.effect)]
    assert {change[0] for change in changes} == {
        "quads", "put", "delete", "create-repository", "remove-repository", "control-add", "control-remove", "publish", "accept",
    }  # fmt: skip
    of_main = [change[0] for change in changes if change[1] == "main" and change[0].endswith("-repository")]
    assert of_main[:3] == ["remove-repository", "create-repository", "remove-repository"]
    rejected = [entry for entry in entries if entry.outcome != APPLIED]
    assert len(rejected) > 100


def test_dropping_a_repository_takes_its_quads_out_one_by_one_within_its_entry() -> None:
    entries = random_entries(7, 1500)
    state, dropped = State(), 0
    for entry in entries:
        state.take(entry)
        for kind, name, *_ in unpack_effect(entry.effect):
            if kind == "remove-repository":
                dropped += 1
                assert not [held for held in state.items.values() if held.store == "graph" and held.name == name]
    assert dropped > 10


def test_a_changed_effect_is_found_at_its_own_lsn() -> None:
    entries = random_entries(3, 200)
    number = next(place for place, entry in enumerate(entries) if place > 100 and b"put" in entry.effect)
    changes = unpack_effect(entries[number].effect)
    changed = [(*change[:3], change[3] + b"!") if change[0] == "put" else change for change in changes]
    entries[number] = entries[number]._replace(effect=msgpack.packb(changed))
    with pytest.raises(StoreDiffers) as caught:
        state_at(entries, 200)
    assert caught.value.lsn == number + 1


def test_a_gap_an_early_end_and_a_late_beginning_are_named() -> None:
    entries = random_entries(3, 20)
    with pytest.raises(LinesMissing, match="entry 6 comes next, not 7"):
        state_at(entries[:5] + entries[6:], 20)
    with pytest.raises(LinesMissing, match="end with LSN 20, before 21"):
        state_at(entries, 21)
    with pytest.raises(LinesMissing, match="entry 1 comes next, not 2"):
        state_at(entries[1:], 3)


def test_the_state_at_an_lsn_leaves_the_rest_alone() -> None:
    entries = random_entries(3, 20)
    assert state_at(entries, 0).fingerprint == EMPTY
    assert state_at(iter(entries), 11).fingerprint == entries[10].fingerprint


def test_the_last_change_of_each_store_is_what_a_store_answers_to_expectations() -> None:
    store, entries = random_store(11, 150)
    state = state_at(entries, 150)
    assert len(state.changed) > 4
    for (kind, name), lsn in state.changed.items():
        before = store.applied().lsn
        for since, expected in ((lsn - 1, "rejected"), (lsn, "applied")):
            body: bytes = msgpack.packb([("expect-since", kind, name, since)])
            (result,) = store.execute(before + 1, [(f"x{before}", 1, body)])
            before += 1
            assert result.outcome == expected


def test_buckets_hold_number_and_xor_of_their_items_and_show_where_states_differ() -> None:
    entries = random_entries(5, 300)
    one, other = state_at(entries, 300), state_at(entries, 300)
    buckets = buckets_of(one.items.items(), 4)
    assert sum(bucket.number for bucket in buckets.values()) == len(one.items) - len(one.repositories())
    item, held = next((item, held) for item, held in other.items.items() if held.store == "table")
    other.items[item] = held._replace(digest=held.digest ^ 1)
    changed = buckets_of(other.items.items(), 4)
    place = ("table", held.name, item[0] >> 4)
    assert list(differing(buckets, changed)) == [place]
    assert changed[place] == Bucket(buckets[place].number, buckets[place].digest ^ 1)
    assert list(differing(buckets, {})) == sorted(buckets)


def read(store: MemoryStore, kind: str, name: str) -> list[tuple[bytes, bytes]]:
    return list(msgpack.unpackb(b"".join(store.read(kind, name, {}).pieces), use_list=False))


def keys_of(state: State, table: str) -> list[tuple[bytes, bytes]]:
    held = [held for held in state.items.values() if held.store == "table" and held.name == table]
    return sorted((each.key, each.value) for each in held)


def queues_of(store: MemoryStore) -> dict[str, dict[str, int]]:
    answer: dict[str, dict[str, int]] = json.loads(b"".join(store.read("queues", "", {}).pieces))
    return answer
