"""Who may say what: the user that published a message between nodes has to be that of the node which it names."""

from __future__ import annotations

import pytest

from brokerha.transports.senders import FOREIGN_USER, NO_USER, Senders

PROCESSES = {"m1": ("m1", "m1s"), "m2": ("m2",), "w1": ("w1",)}
NAMED = Senders("orders", "m1", "orders.m1", PROCESSES)


@pytest.mark.parametrize(
    ("sender", "user", "process", "word"),
    [
        ("m2", "orders.m2", "", None),
        ("w1", "orders.w1", "", None),
        # A process speaks for its master
        ("m1", "orders.m1s", "m1s", None),
        ("m2", "", "", NO_USER),
        ("m2", "orders.app", "", FOREIGN_USER),
        ("m2", "orders.m3", "", FOREIGN_USER),
        ("m2", "m2", "", FOREIGN_USER),
        ("m2", "stock.m2", "", FOREIGN_USER),
        # But nobody else does, whoever it says that it is
        ("m2", "orders.w1", "w1", FOREIGN_USER),
        ("m1", "orders.m1", "m1s", FOREIGN_USER),
        ("m1", "", "m1s", NO_USER),
        # Of a master that was added at run time the processes are not known here
        ("m4", "orders.m4s", "m4s", None),
        ("m4", "orders.m4", "m4s", FOREIGN_USER),
        # But others are
        ("m4", "orders.w1", "w1", FOREIGN_USER),
        ("m4", "orders.m1s", "m1s", FOREIGN_USER),
    ],
)
def test_a_message_is_of_the_node_whose_user_published_it(sender: str, user: str, process: str, word: str | None) -> None:
    problem = NAMED.problem(sender, user, process)
    assert (problem and problem[0]) == word


def test_where_nodes_have_no_users_of_their_own_nothing_can_be_told_apart() -> None:
    shared = Senders("orders", "m1", "guest", PROCESSES)
    assert not shared.is_checked
    assert shared.problem("m2", "") is shared.problem("m2", "guest") is shared.problem("m2", "orders.app", "w1") is None


def test_the_reason_names_the_user_that_it_should_have_been() -> None:
    problem = NAMED.problem("m2", "orders.app")
    assert problem is not None
    assert problem[1] == "it says that it is of m2, and user orders.app published it, not orders.m2"
