"""What a node checks of a step of a transaction before the loop hears of it."""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.nodes.config.cluster import sections
from brokerha.nodes.front.transacting import checked_step


def test_every_time_out_passes_that_a_cluster_file_may_allow():
    high_s = sections()["cluster"]["tx-timeout-max-s"].high
    highest_ms = round(high_s * 1000)
    assert checked_step("begin", "", {"timeout_ms": highest_ms}, 1000)["timeout_ms"] == highest_ms
    with pytest.raises(InvalidRequest, match="timeout_ms"):
        checked_step("begin", "", {"timeout_ms": highest_ms + 1}, 1000)
