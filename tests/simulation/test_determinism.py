"""A seed is a run: the same events in the same order, whatever else differs between two processes."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from brokerha.model.wire.messages import Chunk, Outgoing
from tests.simulation.mistakes.catalogue import planted
from tests.simulator import simulate
from tests.simulator.drawing import CHOSEN_FROM, MEMBERS_FROM, MODES_FROM, SPLITS_FROM
from tests.simulator.events import KEPT, TOLD_CHARS, line

SEEDS = range(12)
MEMBERS = range(MEMBERS_FROM + 815, MEMBERS_FROM + 821)
_PROGRAM = f"from tests.simulator import simulate;print([simulate(seed).digest for seed in (*{SEEDS}, *{MEMBERS})])"


def test_a_seed_gives_the_same_run_under_another_hash_seed_and_another_seed_another_one():
    others = [str(number) for number in (1, 4242) if str(number) != os.environ.get("PYTHONHASHSEED")]
    environment = {**os.environ, "PYTHONHASHSEED": others[0]}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, timeout=600, check=True
    )

    digests = [simulate(seed).digest for seed in (*SEEDS, *MEMBERS)]
    assert done.stdout == f"{digests}\n"
    assert len({*digests}) == len(digests)


def test_telling_the_story_does_not_change_it():
    story = io.StringIO()

    told = simulate(3, trace=story)

    assert told.digest == simulate(3).digest
    assert len(story.getvalue().splitlines()) > told.steps


def test_the_story_shows_the_beginning_of_a_large_message():
    told = line((0, "m1w2", "sends", Outgoing("m1w1", Chunk("m1w1-1", 3, bytes(8192)))))

    assert "Chunk(snapshot='m1w1-1', number=3" in told
    assert "characters)" in told
    assert len(told) < 2 * TOLD_CHARS


def test_every_kind_of_world_tells_the_seed_that_was_asked_for():
    firsts = (0, 1, SPLITS_FROM, MEMBERS_FROM, *MODES_FROM.values(), CHOSEN_FROM)

    assert [simulate(seed, steps=10).seed for seed in firsts] == [*firsts]


def test_a_violation_comes_with_what_is_needed_to_see_it_again():
    # Given a mistake that breaks the order in the first seeds already
    with planted("no counter check"):
        reports = (simulate(seed) for seed in range(25))
        report = next(report for report in reports if report.violation is not None)

    # Then the report names the invariant, the seed, the command and the last events
    assert report.violation is not None
    assert report.violation.startswith("S")
    words = report.words()
    assert f"again: python -m tests.simulator --seed {report.seed} --trace" in words
    assert report.violation in words
    assert len(report.story) == KEPT


def test_fewer_steps_make_a_shorter_run():
    assert simulate(6, steps=100).steps < simulate(6).steps
