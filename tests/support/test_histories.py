"""The checker of histories finds each anomaly that is planted, and nothing where there is none."""

from __future__ import annotations

import pytest

from tests.support.histories import FORBIDDEN, G0, G1A, G1B, G1C, G2, G_SINGLE, LOST, Ran, anomalies


def test_one_after_the_other_is_right() -> None:
    history = [
        Ran(reads=[("x", ())], appends=[("x", 1)]),
        Ran(reads=[("x", (1,)), ("y", ())], appends=[("y", 2)]),
        Ran(committed=False, reads=[("y", (2,))], appends=[("x", 9)]),
        Ran(reads=[("x", (1,)), ("y", (2,))], appends=[("x", 3), ("x", 4)]),
    ]
    assert anomalies(history, {"x": (1, 3, 4), "y": (2,)}) == set()


@pytest.mark.parametrize(
    ("wanted", "history", "last"),
    [
        (LOST, [Ran(reads=[("x", ())], appends=[("x", 1)]), Ran(reads=[("x", ())], appends=[("x", 2)])], {"x": (2,)}),
        (G1A, [Ran(committed=False, appends=[("x", 1)]), Ran(reads=[("x", (1,))])], {"x": (1,)}),
        (G1B, [Ran(appends=[("x", 1), ("x", 2)]), Ran(reads=[("x", (1,))])], {"x": (1, 2)}),
        (G0, [Ran(appends=[("x", 1), ("y", 2)]), Ran(appends=[("x", 3), ("y", 4)])], {"x": (1, 3), "y": (4, 2)}),
        (G1C, [Ran(reads=[("y", (2,))], appends=[("x", 1)]), Ran(reads=[("x", (1,))], appends=[("y", 2)])], {"x": (1,), "y": (2,)}),
        (G_SINGLE, [Ran(reads=[("x", ()), ("y", (2,))]), Ran(appends=[("x", 1), ("y", 2)])], {"x": (1,), "y": (2,)}),
        (
            G2,
            [Ran(reads=[("x", ()), ("y", ())], appends=[("x", 1)]), Ran(reads=[("x", ()), ("y", ())], appends=[("y", 2)])],
            {"x": (1,), "y": (2,)},
        ),
    ],
)
def test_a_planted_anomaly_is_found(wanted: str, history: list[Ran], last: dict[str, tuple[int, ...]]) -> None:
    assert wanted in anomalies(history, last)
    assert wanted in FORBIDDEN["serializable"]


def test_a_write_skew_is_all_that_a_snapshot_may_show() -> None:
    assert FORBIDDEN["serializable"] - FORBIDDEN["snapshot"] == {G2}
    assert FORBIDDEN["snapshot"] - FORBIDDEN["read-committed"] == {LOST, G_SINGLE}
