"""Masters are added, taken out and replaced under load, each by one command: no write is lost, none takes effect twice."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.member_sites import MemberSites, writers_at
from tests.system.writers import Writer, told


def test_from_three_to_five_to_three_and_an_emptied_one_comes_back(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    with MemberSites(tmp_path, vhost_url) as sites:
        took: dict[str, float] = {}
        with writers_at(sites, ("m1", "m2", "m3"), "first") as writers:
            for node in ("m4", "m5"):
                sites.start(node)
            for node in ("m4", "m5"):
                _, took[f"add {node}"] = sites.peer("add", node)
            sites.await_masters("m1", "m2", "m3", "m4", "m5")
            with writers_at(sites, ("m4", "m5"), "later") as more:
                for node in ("m4", "m5"):
                    _, took[f"remove {node}"] = sites.peer("remove", node)
            sites.await_masters("m1", "m2", "m3")
            refused = sites.get("m4", "/writable")
            assert refused is not None
            assert "taken out of the cluster" in refused.text
            sites.stop("m4", "m5")
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


@pytest.mark.campaign
def test_from_one_to_three_to_five_to_three_with_deaths_in_between(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    """Each step is one command, and somebody dies during each second one: who wishes for it, who is added, who leads."""
    with MemberSites(tmp_path, vhost_url, first=1, later=("m2", "m3", "m4", "m5")) as sites:
        took: dict[str, float] = {}
        everybody: list[Writer] = []
        for round_, victim in enumerate((None, "m1")):
            with writers_at(sites, ("m1",), f"growing-{round_}") as writers:
                everybody += writers
                for node in ("m2", "m3", "m4", "m5"):
                    if node in sites.masters:
                        continue
                    sites.start(node)
                    sites.await_answer(node)
                    killer = threading.Timer(2.5, sites.kill, [victim]) if victim else None
                    if killer is not None:
                        killer.start()
                    _, took[f"add {node}, {round_}"] = sites.peer("add", node)
                    if killer is not None:
                        killer.join()
                        sites.await_ready(["m1"])
                sites.await_masters("m1", "m2", "m3", "m4", "m5")
                with writers_at(sites, ("m2", "m3", "m4", "m5"), f"five-{round_}") as more:
                    everybody += more
                    for node in ("m5", "m4"):
                        _, took[f"remove {node}, {round_}"] = sites.peer("remove", node)
                sites.await_masters("m1", "m2", "m3")
                sites.stop("m4", "m5")
                for node in ("m4", "m5"):
                    shutil.rmtree(sites.folder / "var" / node)
                with sites.down_later("m3") as folder:
                    shutil.rmtree(folder)
                _, took[f"replace m3, {round_}"] = sites.peer("replace", "m3")
                sites.await_masters("m1", "m2", "m3")
        sites.await_ready([*sites.masters, *sites.workers])
        length = sites.check(everybody)
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
    covered(f"masters, 1 to 3 to 5 to 3, twice: {steps}; {told(everybody)} acknowledged, {length} in each log, 0 lost, 0 twice")
