"""What a master says of the strategy for splits, and does about it."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from brokerha.master.core import MasterCore
from brokerha.master.split_report import facts_of, listed, shown
from brokerha.model import states
from brokerha.model.epochs import FIRST
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.records import Rewound
from brokerha.model.wire.epoch_messages import EpochPrepare, EpochReport
from brokerha.nodes.observing.master_view import SplitLog
from brokerha.sync.round import RoundResult
from tests.unit.master.one_master import OneMaster
from tests.unit.master.one_of_three import OTHERS, ROW, OneOfThree
from tests.unit.sync.reports import row


class ModeBench(OneOfThree):
    """m1, whose file says smart, and two others that say what a test lets them say."""

    def __init__(self, mode: str = "smart") -> None:
        super().__init__(mode=mode)
        self.mode = mode
        self.hear(*OTHERS)

    def hear(self, *senders: str, **fields: Any) -> None:
        for sender in senders:
            heard = tuple(node for node in ("m1", *OTHERS) if node != sender)
            self.post(sender, **{"mode": self.mode, "heard": heard, **fields})


@pytest.fixture
def bench() -> ModeBench:
    return ModeBench()


def test_what_is_in_force_is_told_with_where_it_comes_from(bench: ModeBench) -> None:
    assert bench.do("split-recovery") == {
        "master": "m1", "mode": "smart", "source": "file", "epoch": 1, "files": {"m1": "smart", "m2": "smart", "m3": "smart"}, "differing": {},
        "change": None,
    }  # fmt: skip
    assert ModeBench("quorum").do("split-recovery")["files"] == {"m1": "quorum", "m2": "quorum", "m3": "quorum"}


def test_a_wish_is_answered_at_once_and_asks_all_masters(bench: ModeBench) -> None:
    answer = bench.do("split-recovery", mode="NONE")
    assert (answer["changed"], answer["mode"]) == (True, "smart")
    assert answer["change"] == {"mode": "none", "state": "under way", "stage": "an epoch is to be decided"}
    bench.sent.clear()
    bench.ms += 1
    bench.run()
    asked = {out.to: out.message for out in bench.sent if isinstance(out.message, EpochPrepare)}
    assert [*asked] == list(OTHERS)
    # When both report
    promised = asked["m2"].epoch
    for number, node in enumerate(OTHERS, 100):
        said = row(node, number, epoch=FIRST, promised=promised, known=ROW.known, mode="smart", heard=("m1",))
        bench.say(node, EpochReport(promised, said, "", (), (), bench.core.sync.epoch.configuration))
    # Then it is in force here, by the epoch, and done once the others are heard in it
    answer = bench.do("split-recovery")
    assert (answer["mode"], answer["source"], answer["epoch"], answer["change"]["state"]) == ("none", "epoch", 2, "under way")
    bench.hear(*OTHERS, epoch=promised, promised=promised)
    assert bench.do("split-recovery")["change"] == {"mode": "none", "state": "done", "stage": "since epoch 2"}
    assert bench.do("split-recovery", mode="none")["changed"] is False
    # And after a restart
    restarted = MasterCore(bench.core.config, bench.journal.state(), bench.journal)
    assert restarted.sync.mode == "none"


def test_what_is_in_force_already_changes_nothing(bench: ModeBench) -> None:
    answer = bench.do("split-recovery", mode="smart")
    assert (answer["changed"], answer["change"]["state"]) == (False, "done")


@pytest.mark.parametrize("mode", [None, 7, "", "smrt"])
def test_a_word_that_is_none_is_refused(bench: ModeBench, mode: object) -> None:
    with pytest.raises(InvalidRequest):
        bench.do("split-recovery", mode=mode)


def test_a_master_that_is_missing_is_named(bench: ModeBench) -> None:
    bench.ms += 1000
    bench.hear("m2")
    bench.ms += 1000
    bench.hear("m2")
    with pytest.raises(NotReady, match="refused during a split: not heard: m3; smart stays in force"):
        bench.do("split-recovery", mode="none")


def test_files_that_differ_are_named_in_the_state(bench: ModeBench) -> None:
    bench.hear("m3", mode="none")
    word, reason = bench.core.state(bench.now())
    assert word == states.WAITING_FOR_PEERS
    assert reason == "split-recovery differs: none at m3, smart here; choose one: brokerha split-recovery MODE"
    assert bench.do("split-recovery")["differing"] == {"m3": "none"}
    # It keeps nobody from writing
    assert bench.core.refusal(bench.now()) == ""
    # Said alike it is well
    bench.hear("m3")
    assert bench.core.state(bench.now())[0] == states.OK


@pytest.mark.parametrize(("here", "there", "named"), [("quorum", "none", "one of the others"), ("smart", "quorum", "quorum")])
def test_a_master_that_agrees_by_another_rule_is_named(here: str, there: str, named: str) -> None:
    bench = ModeBench(here)
    bench.hear("m3", mode=there)
    word, reason = bench.core.state(bench.now())
    assert word == states.WAITING_FOR_PEERS
    assert reason == f"m3: split-recovery = {named} there, {here} here; write the same word into the files of all masters"
    # And a step between agrees with both
    bench.hear("m3", mode="to-smart")
    assert "the same word" not in bench.core.state(bench.now())[1]


# ---- what went back, in the log and in numbers


def test_each_going_back_is_one_line_and_counted() -> None:
    # Given a master whose book has a split from before its start
    one = OneMaster(split_recovery="smart")
    told = SplitLog("m1")
    told.note(one.core)
    assert told.fields(one.core) == {
        "split_recovery": "smart", "split_recovery_from": "file", "splits": 0, "given_up": 0, "last_split": "",
    }  # fmt: skip
    # When its queue goes back to the third of five, and once more without giving anything up
    with capture_logs() as lines:
        for lsn, lineage in ((3, 7), (3, 9)):
            rewound = Rewound(lsn, lineage - 2, lineage)
            added = one.core.parting.on_round(RoundResult(rewound=rewound), one.now())
            one.core.sync.lineage = lineage
            told.note(one.core)  # nothing is durable yet
            one.journal.append([rewound, *added])
            for _ in range(2):
                told.note(one.core)
    # Then there is a line for each, a warning where something lost its place
    assert [
        (line["event"], line["log_level"], line["lsn"], line["given_up"], line["epoch"], line["lineage"]) for line in lines
    ] == [("goes back", "warning", 3, 2, 5, 7), ("goes back", "info", 3, 0, 7, 9)]
    assert told.metrics() == {"splits_total": 2, "transactions_given_up_total": 2}
    assert told.fields(one.core)["last_split"] == "went back to LSN 3, 0 given up, epoch 7"
    # And a process that starts now tells of none
    after = SplitLog("m1")
    after.note(one.core)
    assert after.metrics()["splits_total"] == 0
    # The book has both
    known, facts = one.core.history, facts_of(one.core)
    splits = listed(known, facts)["splits"]
    assert [split["total"] for split in splits] == [0, 2]
    assert [row["txid"] for row in shown(known, facts, {"number": splits[1]["number"]})["entries"]] == ["t4", "t5"]
