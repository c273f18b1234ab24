"""F2: a site under the real supervisord survives what happens to it, loses nothing, and no process of it is given up.

Given a site that ``brokerha init`` set up, started while its broker is away; when each process is killed again and again under load, the broker
is away for a while (and processes are killed meanwhile), and all is stopped and started under load; then every write that was acknowledged is
in every copy once, all stops were in order, and nothing was FATAL. BROKERHA_SUPERVISED_KILLS and BROKERHA_SUPERVISED_OUTAGE_S make it the campaign
(20 and 600).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import brokerha
from tests.support.private_broker import PrivateBroker
from tests.system import writers as writing
from tests.system.copies import await_equal, check_books
from tests.system.supervised import Supervised
from tests.system.writers import Writer, told

VHOST = "supervised"
KILLS = int(os.environ.get("BROKERHA_SUPERVISED_KILLS", "1"))
OUTAGE_S = float(os.environ.get("BROKERHA_SUPERVISED_OUTAGE_S", "10"))
PATIENCE_S = 240.0
RESTARTED = ("m1s", "m1b")
"""Stopped in order while there is no broker."""
NOT_GIVEN_UP = {"RUNNING", "STARTING", "BACKOFF", "EXITED"}
"""A program that ran for a moment has exited before supervisord starts it again (autorestart); one that is given up is FATAL."""


@pytest.fixture
def site(private_broker: PrivateBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    monkeypatch.setattr(writing, "GIVE_UP_S", OUTAGE_S + 240.0)
    with Supervised(private_broker, VHOST) as site:
        site.make()
        yield site
    if not private_broker.is_running:
        private_broker.restart()
    private_broker.delete_vhost(VHOST)


def writers_of(site: Supervised) -> list[Writer]:
    """Through the broker as the app, through it in heaps, and over HTTP at whichever process is primary."""
    app = site.url_of("app")
    over_http = ",".join(map(site.url, ("m1", "m1s")))
    return [
        Writer("amqp", lambda: brokerha.connect(app)),
        Writer("pipe", lambda: brokerha.connect(app), is_pipeline=True),
        Writer("http", lambda: brokerha.connect(over_http)),
    ]


def await_progress(site: Supervised, writers: list[Writer], after: str) -> None:
    """Wait until every writer got more answers."""
    before = {writer.name: told([writer]) for writer in writers}

    def slow() -> list[str]:
        return [w.name for w in writers if told([w]) < before[w.name] + 3 and w.fault is None]

    site.until(lambda: not slow(), lambda: f"answers at {slow()} after {after}", PATIENCE_S)


def kill_each(site: Supervised, writers: list[Writer]) -> int:
    """SIGKILL every process, one after the other, KILLS times; every second time before it is ready again."""
    count = 0
    for turn in range(KILLS):
        for node in site.nodes:
            site.kill(node)
            count += 1
            if turn % 2:
                site.await_ready([node])
        site.await_ready(site.nodes)
        await_progress(site, writers, f"turn {turn + 1} of kills")
    return count


def be_without_broker(site: Supervised, broker: PrivateBroker) -> None:
    """The broker is away; meanwhile a master and a worker are killed, and must start without it."""
    deadline = time.monotonic() + OUTAGE_S
    broker.kill()
    for node in ("m1", "m1a"):
        site.kill(node)
    while time.monotonic() < deadline:
        assert set(site.states().values()) <= NOT_GIVEN_UP, site.states()
        time.sleep(1)
    site.await_states("RUNNING")
    # Nor does a stop wait for it.
    for node in RESTARTED:
        site.control("restart", f"{VHOST}-{node}")
    broker.restart()


@pytest.mark.slow
def test_nothing_is_lost_and_nobody_is_given_up(
    site: Supervised, private_broker: PrivateBroker, covered: Callable[[str], None]
) -> None:
    private_broker.kill()
    site.start()
    site.await_states("RUNNING")
    private_broker.restart()
    site.await_ready(site.nodes)
    check_doors(site)

    writers = writers_of(site)
    for writer in writers:
        writer.start()
    await_progress(site, writers, "the start")
    kills = kill_each(site, writers)
    be_without_broker(site, private_broker)
    site.await_ready(site.nodes)
    await_progress(site, writers, "the outage")
    site.control("stop", "all")
    site.await_states("STOPPED")
    site.control("start", "all")
    site.await_ready(site.nodes)
    await_progress(site, writers, "stop and start")
    for writer in writers:
        writer.finish(PATIENCE_S + OUTAGE_S)

    await_equal(site, PATIENCE_S)
    check_books(site, writers)
    assert set(site.states().values()) == {"RUNNING"}
    assert site.shut_down() == 0
    said = site.log.read_text(encoding="utf-8")
    assert "FATAL" not in said
    assert "gave up" not in said
    # All stops were in order: no process had to be killed, and each ended with 0.
    assert "killing" not in said
    assert len(re.findall(r"stopped: \S+ \(exit status 0\)", said)) == 2 * len(site.nodes) + len(RESTARTED), said
    total = told(writers)
    covered(
        f"supervisord: {kills} kills, the broker away for {OUTAGE_S:.0f} s, stop and start under load; {total:,} writes, none lost"
    )


def check_doors(site: Supervised) -> None:
    """The socket is for one user, nothing runs as root, secrets and logs are private."""
    socket = site.deploy / "run" / "supervisor.sock"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    for pid in site.pids().values():
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
        assert (uid == "0") is not site.is_unprivileged
        words = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert site.url_of("m1").split(":")[2].split("@")[0].encode() not in words
    # What stands in them is of no concern to others (supervisord in the foreground leaves its umask alone).
    folders = [site.deploy / name for name in ("log", "run", "secrets")]
    for path in [*folders, *(site.deploy / "secrets").iterdir(), *(site.home / "var").rglob("*")]:
        assert not path.stat().st_mode & 0o007, path


def test_a_program_that_cannot_start_is_never_given_up(site: Supervised) -> None:
    """A program that cannot even start is tried again for ever, ever more slowly, and runs as soon as it can."""
    right = site.path.read_text(encoding="utf-8")
    site.path.write_text(right.replace("[[backup]]", "[[nonsense]]"), encoding="utf-8")
    site.start()
    site.until(site.states, "supervisord answers", PATIENCE_S)

    def was_tried_again() -> bool:
        assert set(site.states().values()) <= NOT_GIVEN_UP
        return site.log.read_text(encoding="utf-8").count(f"exited: {VHOST}-m1 ") >= 4

    # More tries than supervisord has by default, after which it would say FATAL. On a busy machine a start may take so long that it counts as
    # running.
    site.until(was_tried_again, "m1 is tried again", PATIENCE_S)
    site.path.write_text(right, encoding="utf-8")
    site.await_states("RUNNING")
    site.await_ready(site.nodes)
