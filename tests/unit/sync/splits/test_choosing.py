"""The strategy for splits is chosen while the cluster runs, by an epoch of all masters (rule R13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from brokerha.master.state_words import epoch_state
from brokerha.model import states
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare
from brokerha.model.wire.messages import Bodies, Outgoing
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from brokerha.sync.membership import DONE, FAILED, PATIENCE_MS, UNDER_WAY
from brokerha.sync.splits.choosing import differing, files, mode_of
from tests.unit.paper.masters import Choice as Links
from tests.unit.sync.epoch_table import LAG_MS, STEP_MS, EpochTable, everything
from tests.unit.sync.member_table import without
from tests.unit.sync.reports import report
from tests.unit.sync.splits.test_split_modes import parted


class ModeTable(EpochTable):
    """Masters of which each has a file of its own."""

    def __init__(self, *modes: str) -> None:
        self.modes = {f"m{n}": mode for n, mode in enumerate(modes, 1)}
        super().__init__(len(modes), split_recovery=modes[0])
        self.live(400)

    def start(self, name: NodeId) -> SyncCore:
        settings = {**self.settings, "split_recovery": self.modes[name]}
        core = super().start(name)
        config = SyncConfig(node=name, members=self.names, **settings)  # type: ignore[arg-type]
        self.cores[name] = SyncCore(config, self.journals[name].state(), self.journals[name])
        assert core.node == name
        return self.cores[name]

    def in_force(self) -> dict[NodeId, str]:
        return {name: core.mode for name, core in self.cores.items()}


def everywhere(mode: str, *names: NodeId) -> dict[NodeId, str]:
    return dict.fromkeys(names or ("m1", "m2", "m3"), mode)


def until(table: ModeTable, is_so: Callable[[], bool], choice: Links = everything) -> None:
    """Let time pass until something is so."""
    for _ in range(20 * LAG_MS // STEP_MS):
        if is_so():
            return
        table.live(STEP_MS, choice)
    raise AssertionError(f"it is not so: {table.in_force()}")


@pytest.mark.parametrize("at", ["m1", "m3"])
@pytest.mark.parametrize("mode", ["none", "Simple"])
def test_what_one_master_is_told_all_of_them_follow_for_good(at: str, mode: str) -> None:
    # Given masters whose files say smart, with something in their queue
    table = ModeTable("smart", "smart", "smart")
    table.make_queue("a")
    # When one of them is told another word
    choice = table.choose(at, mode)
    assert (choice.mode, choice.state) == (mode.lower(), UNDER_WAY)
    table.live(LAG_MS)
    # Then all follow it in one epoch, with everything that they had, and the wish is done
    assert table.in_force() == everywhere(mode.lower())
    assert {core.epoch.number for core in table.cores.values()} == {2}
    assert choice.state == DONE
    assert table.queue("m2") == ["a"]
    # And do so after a restart, and in the epochs of a split and of its end
    for name in table.names:
        table.restart(name)
    table.live(LAG_MS)
    table.live(3 * LAG_MS, parted("m1 m2", "m3"))
    assert table.cores["m3"].epoch.members == ("m3",)
    table.live(6 * LAG_MS)
    assert {core.epoch.members for core in table.cores.values()} == {table.names}
    assert table.in_force() == everywhere(mode.lower())


def test_how_soon_a_silent_master_is_missed_goes_by_what_is_chosen() -> None:
    table = ModeTable("smart", "smart", "smart")
    m2 = table.cores["m2"]
    table.choose("m1", "none")
    table.live(LAG_MS)
    assert m2.epochs.suspicion.lag_ms == m2.config.lag_of("none")


def test_what_is_in_force_already_is_done_at_once_and_begins_nothing() -> None:
    table = ModeTable("smart", "smart", "smart")
    assert table.choose("m2", "SMART").state == DONE
    table.choose("m1", "none")
    table.live(LAG_MS)
    number = table.cores["m1"].epoch.number
    assert table.choose("m3", "none").state == DONE
    table.live(LAG_MS)
    assert table.cores["m1"].epoch.number == number


def test_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'smrt' is not known: write one of none, simple, smart, quorum"):
        ModeTable("smart", "smart").choose("m1", "smrt")


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
@pytest.mark.parametrize("at", ["m1", "m3"])
def test_from_quorum_and_back_a_step_between_is_taken_by_all_of_them(at: str, mode: str) -> None:
    # Given masters whose files say quorum, with something in their queue
    table = ModeTable("quorum", "quorum", "quorum")
    table.make_queue("a")
    for number, (wanted, step) in enumerate([(mode, f"to-{mode}"), ("quorum", "to-quorum")]):
        # When one of them is told the other word
        choice = table.choose(at, wanted)
        seen = set()
        for _ in range(3 * LAG_MS // STEP_MS):
            table.live(STEP_MS)
            now = {*table.in_force().values()}
            # Then never one follows quorum and another one lets any side decide
            assert not ("quorum" in now and mode in now)
            seen |= now
        assert step in seen
        assert table.in_force() == everywhere(wanted)
        assert (choice.state, {core.epoch.number for core in table.cores.values()}) == (DONE, {3 + 2 * number})
    table.write("m2", "b")
    table.live(LAG_MS)
    assert [table.queue(name) for name in table.names] == [["a", "b"]] * 3
    assert all(core.lineage == 0 for core in table.cores.values())


@pytest.mark.parametrize(("first", "wanted"), [("quorum", "smart"), ("smart", "quorum")])
def test_a_step_between_goes_on_by_itself_after_any_crash(first: str, wanted: str) -> None:
    # Given that the first epoch of two is decided, and all masters end, so that nobody remembers who wished for it
    table = ModeTable(first, first, first)
    table.make_queue("a")
    table.choose("m1", wanted)
    until(table, lambda: table.cores["m1"].mode != first)
    for name in table.names:
        table.restart(name)
    assert f"to-{wanted}" in table.in_force().values()
    # When they are back
    table.live(6 * LAG_MS)
    # Then all of them have what was wished for
    assert table.in_force() == everywhere(wanted)
    assert [table.queue(name) for name in table.names] == [["a"]] * 3


def test_in_a_step_between_only_a_majority_goes_on_and_the_step_waits_for_all() -> None:
    table = ModeTable("quorum", "quorum", "quorum")
    choice = table.choose("m1", "smart")
    until(table, lambda: table.in_force() == everywhere("to-smart"))
    # When one is cut off
    table.live(6 * LAG_MS, without("m3"))
    table.write("m1", "a")
    table.write("m3", "z")
    table.live(2 * LAG_MS, without("m3"))
    # Then the others write on without it, and it does not
    assert (table.members("m1"), table.queue("m2"), table.queue("m3")) == (("m1", "m2"), ["a"], [])
    assert table.in_force() == everywhere("to-smart")
    assert (choice.state, choice.stage) == (UNDER_WAY, "epoch 3 has to-smart: not heard: m3")
    word, reason = epoch_state(table.cores["m1"], table.now.mono_ms) or ("", "")
    assert (word, "to-smart is in force until all masters are there" in reason) == (states.SPLIT, True)
    # And when it is back, all of them are there
    table.live(8 * LAG_MS)
    assert (choice.state, table.in_force()) == (DONE, everywhere("smart"))
    assert [table.queue(name) for name in table.names] == [["a", "z"]] * 3


@pytest.mark.parametrize(("first", "wanted"), [("quorum", "simple"), ("simple", "quorum"), ("quorum", "none"), ("none", "quorum")])
@pytest.mark.parametrize("told", ["m1", "m2 m3"])
@pytest.mark.parametrize("which", [1, 2])
def test_a_decision_that_only_some_have_heard_of_when_they_part_harms_nobody(
    first: str, wanted: str, told: str, which: int
) -> None:
    # Given that of the two epochs one reaches only some of the masters, and then these and the others are cut off from each other
    table = ModeTable(first, first, first)
    table.make_queue("a")
    table.choose("m1", wanted)
    names = {"m1", *told.split()}

    def as_told(_sender: str, out: Outgoing) -> bool:
        is_it = isinstance(out.message, EpochInstall) and out.message.epoch.number == 1 + which
        return not is_it or out.to in names

    until(table, lambda: any(core.epoch.number == 1 + which for core in table.cores.values()), as_told)
    for number in range(20):
        table.write("m1", f"x{number}")
        table.write("m3", f"z{number}")
        table.live(LAG_MS // 4, parted("m1", "m2 m3"))
    # When they hear each other again
    table.live(12 * LAG_MS)
    # Then all follow one strategy, and everything is there once
    assert len({*table.in_force().values()}) == 1
    queues = [table.queue(name) for name in table.names]
    assert queues[0] == queues[1] == queues[2]
    assert sorted(queues[0]) == sorted(["a", *(f"{side}{number}" for side in "xz" for number in range(20))])


def test_the_step_is_not_left_before_all_masters_have_what_quorum_gave_a_place() -> None:
    # Given a transaction that m1 and m2 hold, that m3 lacks the body of, and that the first epoch of two recovers
    table = ModeTable("quorum", "quorum", "quorum")

    def no_body_at_m3(_sender: str, out: Outgoing) -> bool:
        return not (out.to == "m3" and isinstance(out.message, Bodies))

    table.write("m1", "a")
    table.live(2 * STEP_MS, no_body_at_m3)
    choice = table.choose("m2", "simple")
    table.live(LAG_MS // 2, no_body_at_m3)
    # Then they stay in the step, and say what for
    assert table.in_force() == everywhere("to-simple")
    assert (choice.state, choice.stage) == (
        UNDER_WAY,
        "epoch 2 has to-simple: 1 transactions from before epoch 2 are being synchronised",
    )
    # And go on as soon as it has come
    table.live(2 * LAG_MS)
    assert table.in_force() == everywhere("simple")
    assert [table.queue(name) for name in table.names] == [["a"]] * 3


def test_where_sides_may_part_each_member_holds_what_is_added_whatever_the_files_ask_for() -> None:
    # Given masters for which two of three are enough
    table = ModeTable("quorum", "quorum", "quorum")
    table.settings["acknowledge"] = "majority"
    for name in table.names:
        table.restart(name)
    table.live(LAG_MS)

    def deaf(_sender: str, out: Outgoing) -> bool:
        return not (out.to == "m3" and isinstance(out.message, Bodies))

    table.write("m1", "a")
    table.live(LAG_MS // 2, deaf)
    assert table.queue("m1") == ["a"]
    table.live(LAG_MS)
    # When they follow another strategy
    table.choose("m1", "smart")
    table.live(2 * LAG_MS)
    assert table.in_force() == everywhere("smart")
    # Then all of them have to
    table.write("m1", "b")
    table.live(LAG_MS // 2, deaf)
    assert table.queue("m1") == ["a"]
    table.live(LAG_MS)
    assert table.queue("m3") == ["a", "b"]


def test_during_a_split_it_is_refused_with_who_is_missing() -> None:
    table = ModeTable("smart", "smart", "smart")
    table.live(table.cores["m1"].config.heard_ms + 2 * STEP_MS, without("m3"))
    # Before a side goes on
    with pytest.raises(NotReady, match=r"refused during a split: not heard: m3; smart stays in force"):
        table.choose("m1", "none")
    # And then
    table.live(2 * LAG_MS, without("m3"))
    assert table.members("m1") == ("m1", "m2")
    with pytest.raises(NotReady, match=r"refused during a split: not heard: m3"):
        table.choose("m2", "none")
    with pytest.raises(NotReady, match=r"refused during a split: not heard: m1, m2"):
        table.choose("m3", "none")


def test_while_an_epoch_is_agreed_on_or_a_master_hears_another_one_no_more_it_is_refused() -> None:
    table = ModeTable("smart", "smart", "smart")
    table.attempt("m2")
    with pytest.raises(NotReady, match="epoch 2 is being agreed on"):
        table.choose("m2", "none")
    table = ModeTable("smart", "smart", "smart")

    def deaf(sender: str, out: Outgoing) -> bool:
        return (sender, out.to) != ("m3", "m2")

    table.live(600, deaf)
    with pytest.raises(NotReady, match="m2 does not hear m3"):
        table.choose("m1", "none")


def test_one_after_the_other() -> None:
    table = ModeTable("smart", "smart", "smart")
    choice = table.choose("m1", "none")
    assert table.choose("m1", "none") is choice
    with pytest.raises(NotReady, match="none is being put in force here"):
        table.choose("m1", "simple")


def test_of_two_wishes_at_two_masters_both_end_and_all_follow_the_same() -> None:
    table = ModeTable("smart", "smart", "smart")
    choices = [table.choose("m1", "none"), table.choose("m3", "simple")]
    table.live(8 * LAG_MS)
    assert [choice.state for choice in choices] == [DONE, DONE]
    (mode,) = {*table.in_force().values()}
    assert mode in {"none", "simple"}


def test_an_epoch_that_comes_without_a_master_does_not_have_the_wish() -> None:
    # Given a wish, and a master that is cut off before it can report
    table = ModeTable("smart", "smart", "smart")
    choice = table.choose("m1", "none")
    table.live(3 * LAG_MS, without("m3"))
    assert table.members("m1") == ("m1", "m2")
    # Then nothing changed, as nobody knows what the other side does
    assert table.in_force() == everywhere("smart")
    assert (choice.state, "m3" in choice.stage) == (UNDER_WAY, True)
    # And it is put in force as soon as all are there again
    table.live(6 * LAG_MS)
    assert (choice.state, table.in_force()) == (DONE, everywhere("none"))


def test_a_wish_that_comes_no_nearer_fails_with_what_it_waited_for() -> None:
    table = ModeTable("smart", "smart", "smart")
    choice = table.choose("m1", "none")
    table.live(PATIENCE_MS + LAG_MS, without("m3"))
    assert choice.state == FAILED
    assert "not heard: m3" in choice.stage
    table.live(6 * LAG_MS)
    assert table.in_force() == everywhere("smart")


def test_it_is_done_when_every_master_has_taken_it_over() -> None:
    table = ModeTable("smart", "smart", "smart")
    choice = table.choose("m1", "none")

    def not_told(_sender: str, out: Outgoing) -> bool:
        return not (isinstance(out.message, EpochInstall) and out.to == "m3")

    table.live(LAG_MS // 2, not_told)
    assert table.in_force() == {"m1": "none", "m2": "none", "m3": "smart"}
    assert (choice.state, choice.stage) == (UNDER_WAY, "epoch 2 has none: m3 is not in epoch 2 yet")
    table.live(LAG_MS)
    assert (choice.state, choice.stage) == (DONE, "since epoch 2")


def test_what_was_chosen_goes_before_the_side_that_had_not_heard_of_it() -> None:
    # Given that m3 misses the epoch that has it, and goes on by itself in later ones
    table = ModeTable("smart", "smart", "smart")
    choice = table.choose("m1", "none")
    table.live(LAG_MS // 4, lambda _s, out: not (out.to == "m3" and isinstance(out.message, EpochInstall)))
    table.live(4 * LAG_MS, without("m3"))
    assert table.in_force() == {"m1": "none", "m2": "none", "m3": "smart"}
    # When all are together again
    table.live(8 * LAG_MS)
    assert table.in_force() == everywhere("none")
    assert choice.state == DONE


def test_files_that_differ_are_told_and_the_first_epoch_makes_them_one() -> None:
    # Given files of which each says something else, and no epoch that says anything
    table = ModeTable("smart", "none", "simple")
    assert table.in_force() == {"m1": "smart", "m2": "none", "m3": "simple"}
    for core in table.cores.values():
        assert files(core) == {"m1": "smart", "m2": "none", "m3": "simple"}
    assert differing(table.cores["m1"]) == {"m2": "none", "m3": "simple"}
    # When an epoch is decided for whatever reason
    table.live(2 * LAG_MS, without("m3"))
    table.live(8 * LAG_MS)
    # Then all follow the same one, and nobody differs any more
    (mode,) = {*table.in_force().values()}
    assert {core.epoch.mode for core in table.cores.values()} == {mode}
    assert [differing(core) for core in table.cores.values()] == [{}, {}, {}]


def test_of_files_that_differ_an_operator_chooses_one() -> None:
    table = ModeTable("smart", "none", "smart")
    choice = table.choose("m1", "smart")
    assert choice.state == UNDER_WAY
    table.live(LAG_MS)
    assert (choice.state, table.in_force()) == (DONE, everywhere("smart"))


def test_without_a_wish_no_epoch_says_anything_of_it() -> None:
    table = ModeTable("quorum", "quorum", "quorum")
    table.live(2 * LAG_MS, without("m3"))
    table.live(4 * LAG_MS)
    assert table.cores["m1"].epoch.number > 2
    assert {core.epoch.mode for core in table.cores.values()} == {""}
    assert {message.mode for message in table.messages(EpochPrepare)} == {"quorum"}


def test_what_an_epoch_says_goes_before_the_files() -> None:
    table = ModeTable("smart", "smart", "smart")
    table.choose("m1", "none")
    table.live(LAG_MS)
    for name in table.names:
        table.modes[name] = "quorum"
        table.restart(name)
    assert table.in_force() == everywhere("none")


def test_reports_say_how_sides_come_together_in_whatever_order_they_came() -> None:
    def of(node: str, epoch: int, chosen: str, file: str) -> object:
        made = report(node)
        return replace(made, mode=chosen, row=replace(made.row, epoch=(epoch, node), mode=file))

    alike = [of("m1", 3, "", "smart"), of("m2", 2, "", "smart")]
    unlike = [of("m1", 2, "", "smart"), of("m2", 3, "", "none"), of("m3", 3, "", "simple")]
    over = [of("m1", 2, "simple", "smart"), of("m2", 3, "none", "smart"), of("m3", 4, "", "smart")]
    chosen = [*over, of("m1", 5, "to-quorum", "to-quorum")]
    for reports, told in (
        (alike, ("smart", "")),
        (unlike, ("simple", "simple")),
        (over, ("smart", "")),
        (chosen, ("to-quorum", "to-quorum")),
    ):
        assert mode_of(reports) == mode_of(reports[::-1]) == told  # type: ignore[arg-type]
