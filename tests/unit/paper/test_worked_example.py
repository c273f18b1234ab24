"""The worked example of the TxLog sync design, as a story that can be read.

Three masters have U1 to U10 synchronised. Their incoming queues are (A, B), (C) and (D, E). After collecting, A, B and C
are known everywhere and are added. Then D and E follow, while F and G are arriving.
"""

from __future__ import annotations

from brokerha.model.wire.messages import Bodies
from tests.unit.paper.masters import Table

SYNCHRONISED = [f"U{n}" for n in range(1, 11)]


def test_the_worked_example() -> None:
    """Example: three masters have U1 to U10, their incoming queues are (A, B), (C) and (D, E); A, B and C are added first, then D and E."""
    # Given three masters with U1-U10 in their synchronised queues and nothing incoming.
    table = Table(3)
    table.write("m1", *SYNCHRONISED)
    table.settle()
    for name in table.names:
        assert table.queue(name) == SYNCHRONISED
        assert table.incoming(name) == []

    # When A and B come in at the first master, C at the second, D and E at the third, in this order of time.
    for name, letters in (("m1", "AB"), ("m2", "C"), ("m3", "DE")):
        for letter in letters:
            table.pass_ms(1)
            table.write(name, letter)
            table.round(name)
    # Then each incoming queue holds what came in there.
    assert [table.incoming(name) for name in table.names] == [["A", "B"], ["C"], ["D", "E"]]

    # When they collect, but the bodies of D and E have not arrived anywhere else yet.
    table.deliver(lambda sender, out: not (sender == "m3" and isinstance(out.message, Bodies)))
    table.round()
    # Then A, B and C are known to all of them; D and E are not.
    assert [table.incoming(name) for name in table.names] == [list("ABC"), list("ABC"), list("ABCDE")]

    # When they post that to each other, then A, B, C are the longest common prefix and are added everywhere.
    table.deliver(lambda sender, out: not (sender == "m3" and isinstance(out.message, Bodies)))
    table.round()
    for name in table.names:
        assert table.queue(name) == [*SYNCHRONISED, "A", "B", "C"]

    # When D and E arrive, and F and G come in meanwhile, then D and E are agreed on and F and G are incoming.
    table.pass_ms(1)
    table.write("m1", "F")
    table.write("m2", "G")
    table.deliver()
    table.round()
    assert table.incoming("m1")[:2] == ["D", "E"]
    assert "F" in table.incoming("m1")

    # Then the next rounds add D and E before F and G, in the same order everywhere.
    table.settle()
    for name in table.names:
        assert table.queue(name)[:15] == [*SYNCHRONISED, "A", "B", "C", "D", "E"]
        assert sorted(table.queue(name)[15:]) == ["F", "G"]
    assert table.queue("m1") == table.queue("m2") == table.queue("m3")
