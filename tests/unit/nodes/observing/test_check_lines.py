"""Lines of a probe: what is wrong is said, in one line."""

from __future__ import annotations

import pytest

from brokerha.nodes.observing.probes import NO_WORKER, NO_WORKER_LINE, broker_check, check_lines, lag_check, loop_check
from brokerha.ports.transport import TransportStatus


def test_all_is_well_when_nothing_is_said_to_be_wrong() -> None:
    assert check_lines({"loop": "", "lag": ""}) == (True, ["[+]loop ok", "[+]lag ok"])


def test_what_is_wrong_is_said_in_one_line() -> None:
    is_ready, lines = check_lines({"loop": loop_check(is_running=False), "journal": "it cannot be written:\n  no space"})
    assert not is_ready
    assert lines == ["[-]loop has ended: restart the node", "[-]journal it cannot be written: no space"]
    assert check_lines({"worker": NO_WORKER})[1] == [NO_WORKER_LINE]


def test_a_broker_that_is_away_is_named_with_the_reason() -> None:
    away = TransportStatus("waiting-for-broker", "connection refused", 0, {})
    assert broker_check(away) == "waiting-for-broker: connection refused"
    assert broker_check(TransportStatus("connected", "", 0, {})) == ""


@pytest.mark.parametrize(
    ("lag", "lag_s", "max_lag", "max_lag_s", "said"),
    [
        (9, None, None, None, ""),
        (9, 2.0, 9, 2.0, ""),
        (10, 2.0, 9, None, "10 transactions behind, more than 9"),
        (0, 2.5, None, 2.0, "2.5 s behind, more than 2"),
        (0, None, None, 2.0, "nobody knows how old it is"),
    ],
)
def test_a_copy_that_lags_says_how_far(
    lag: int, lag_s: float | None, max_lag: int | None, max_lag_s: float | None, said: str
) -> None:
    assert lag_check(lag, lag_s, max_lag, max_lag_s) == said
