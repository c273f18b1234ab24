"""Who the masters of the first epoch are: the cluster file says it, until all of them know each other."""

from __future__ import annotations

from brokerha.sync.membership import DONE
from tests.support.logs import memory_log
from tests.unit.sync.epoch_table import LAG_MS
from tests.unit.sync.member_table import MemberTable

THREE = ("m1", "m2", "m3")


def test_a_longer_list_in_the_file_changes_nothing_once_the_masters_know_each_other() -> None:
    # Given three masters in their first epoch, whose file names a fourth one from now on
    table = MemberTable()
    table.make_queue("a")
    table.newcomer("m4")
    for name in ("m1", "m2"):
        table.files[name] = (*THREE, "m4")
        table.restart(name)
    table.live(2 * LAG_MS)
    # Then it is none before it is added, and nothing waits for it
    assert {table.masters(name) for name in THREE} == {THREE}
    table.write("m1", "b")
    table.live(LAG_MS)
    assert table.queue("m3") == ["a", "b"]
    wish = table.add("m1", "m4")
    table.live(4 * LAG_MS)
    assert wish.state == DONE, wish.stage
    assert table.queue("m4") == ["a", "b"]


def test_a_shorter_list_takes_nobody_out() -> None:
    table = MemberTable()
    table.make_queue("a")
    table.files["m1"] = ("m1", "m2")
    table.restart("m1")
    assert table.masters("m1") == THREE


def test_before_they_know_each_other_the_file_can_be_corrected() -> None:
    # Given a file that names a master that there is not
    table = MemberTable()
    table.crash("m3")
    del table.journals["m3"]
    for name in ("m1", "m2"):
        table.crash(name)
        table.journals[name] = memory_log(name, f"fresh-journal-of-{name}")
    for name in ("m1", "m2"):
        table.start(name)
    table.live(LAG_MS)
    assert table.masters("m1") == THREE
    # When it is taken out of the file, and all are started again
    for name in ("m1", "m2"):
        table.files[name] = ("m1", "m2")
        table.restart(name)
    table.live(LAG_MS)
    table.write("m1", "a")
    table.live(LAG_MS)
    assert table.masters("m1") == ("m1", "m2")
    assert table.queue("m2") == ["a"]


def test_one_that_a_master_was_told_to_add_in_vain_is_no_founder() -> None:
    # Given a wish that came to nothing, because the others were away
    table = MemberTable()
    table.make_queue("a")
    table.newcomer("m4")
    table.add("m1", "m4")
    table.live(LAG_MS // 2, lambda sender, out: {sender, out.to} == {"m1", "m4"})
    # When the one that listened is started again, with a file that has it
    table.files["m1"] = (*THREE, "m4")
    table.restart("m1")
    # Then it knows nothing of it
    assert table.masters("m1") == THREE
    assert "m4" not in table.cores["m1"].peers.journals


def test_a_single_master_and_one_whose_file_names_both_become_two_by_a_command_only() -> None:
    # Given m1 alone, told to add m2 before that is started
    table = MemberTable(1)
    table.make_queue("a")
    wish = table.add("m1", "m2")
    table.newcomer("m2")
    table.live(4 * LAG_MS)
    # Then it was no founder for a moment, and is a master with everything
    assert wish.state == DONE, wish.stage
    assert table.masters("m2") == ("m1", "m2")
    table.write("m2", "b")
    table.live(LAG_MS)
    assert table.queue("m1") == table.queue("m2") == ["a", "b"]
