"""Masters are added, taken out and replaced under load, each by one command: no write is lost, none takes effect twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker_source import BrokerSource
from tests.system.member_sites import MemberSites, writers_at
from tests.system.writers import Writer


def told(writers: list[Writer]) -> int:
    """How many writes were acknowledged."""
    return sum(len(writer.acknowledged) + writer.counted for writer in writers)


@pytest.fixture
def vhost(broker: BrokerSource) -> Iterator[str]:
    """A virtual host of its own."""
    yield broker.create_vhost("members")
    broker.delete_vhost("members")


def test_from_three_to_five_to_three_and_an_emptied_one_comes_back(
    vhost: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with MemberSites(tmp_path, vhost) as sites:
        took: dict[str, float] = {}
        with writers_at(sites, ("m1", "m2", "m3"), "first") as writers:
            for node in ("m4", "m5"):
                sites.start(node)
                _, took[f"add {node}"] = sites.peer("add", node)
            sites.await_masters("m1", "m2", "m3", "m4", "m5")
            with writers_at(sites, ("m4", "m5"), "later") as more:
                for node in ("m4", "m5"):
                    _, took[f"remove {node}"] = sites.peer("remove", node)
            sites.await_masters("m1", "m2", "m3")
            refused = sites.get("m4", "/writable")
            assert refused is not None
            assert "taken out of the cluster" in refused.text
            for node in ("m4", "m5"):
                sites.stop(node)
            with sites.down("m3") as folder:
                shutil.rmtree(folder)
            said, took["replace m3"] = sites.peer("replace", "m3")
            assert "added with its new journal" in said
            sites.await_masters("m1", "m2", "m3")
        sites.await_ready([*sites.masters, *sites.workers])
        writers = [*writers, *more]
        length = sites.check(writers)
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
    covered(f"masters, 3 to 5 to 3 and one emptied: {steps}; {told(writers)} acknowledged, {length} in each log, 0 lost, 0 twice")
