"""A large transaction over RabbitMQ with real processes: one place in the order, whoever is killed in the middle, and others write beside it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgpack
import pytest

import brokerha
from brokerha.client.large import LargeTransaction
from brokerha.model.errors import BrokerhaError, NotReady, TimedOut, Unreachable
from brokerha.model.reserved.staging import TABLE
from brokerha.ports.front import ReadOutcome
from tests.system.tx_site import TxSite, of_module

WAIT_S = 60.0
MAKE_ANEW_S = 3600.0
"""The same for hundreds of MiB."""
COMMIT_S = 300.0
"""Workers that were killed make what is staged anew."""
READY_S = 600.0
"""A worker that ended badly twice looks at all its data before it is ready, millions of triples here."""
TRIPLES = 40_000
"""About 2 MB in some thirty parts."""


site = of_module("staged", backups=1, others=2)


def lines(name: str, first: int = 0, count: int = TRIPLES) -> str:
    return "".join(f'<urn:{name}:{n // 10}> <urn:p{n % 10}> "value {n}" .\n' for n in range(first, first + count))


def count(db: brokerha.Session, name: str) -> int:
    """Triples of one transaction that are there."""
    text = f'SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o FILTER(STRSTARTS(STR(?s), "urn:{name}:")) }}'
    answer = db.query("main", text, accept="application/sparql-results+json", min_lsn="latest")
    assert isinstance(answer, ReadOutcome)
    return int(json.loads(answer.body)["results"]["bindings"][0]["n"]["value"])


class Others:
    """Small writes of somebody else, until the block is left."""

    def __init__(self, site: TxSite) -> None:
        self._site = site
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written = 0
        self.longest_s = 0.0
        self.faults: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._site.client("m3", "m2", timeout=WAIT_S) as db:
            while not self._stop.is_set():
                begun_s = time.monotonic()
                try:
                    # Some of it is about the same quads.
                    db.write(
                        [("put", "small", b"k", b"%d" % self.written), ("remove", "main", lines("mixed", self.written % 100, 3))]
                    )
                    self.written += 1
                    self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                except BrokerhaError as fault:
                    self.faults.append(fault)


def test_files_are_loaded_as_one_transaction(site: TxSite, tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text(lines("loaded") + "_:x <urn:p> _:y .\n")
    (tmp_path / "b.ru").write_text("PREFIX : <urn:> INSERT DATA { _:x :p [] }\n")
    (tmp_path / "wrong.nt").write_text("this is no triple\n")
    with site.client("m2", timeout=WAIT_S) as db, Others(site) as others:
        site.run("load", "--atomic", str(tmp_path / "a.nt"), str(tmp_path / "wrong.nt"), code=2)
        assert (count(db, "loaded"), db.range(TABLE, min_lsn="latest")) == (0, [])
        done = json.loads(site.run("load", "--atomic", "--output", "json", str(tmp_path / "a.nt"), str(tmp_path / "b.ru")))
        assert (done["transactions"], done["statements"]) == (1, TRIPLES + 2)
        assert count(db, "loaded") == TRIPLES
        assert db.size("main", min_lsn="latest") == TRIPLES + 2
    assert others.written > 0
    assert others.faults == []
    site.until(lambda: len(site.fingerprints()) == 1, "all copies are equal")


def test_whoever_is_killed_in_the_middle_it_takes_place_once(site: TxSite) -> None:
    with site.client("m2", "m3", timeout=WAIT_S) as db, Others(site) as others:
        tx = db.large_transaction(timeout=COMMIT_S)
        tx.add("main", lines("mixed", 0, TRIPLES // 2))
        for node in ("m1", "w1", "w3", "m1b"):
            part = lines(f"killed-{node}", 0, 2_000)
            killed_meanwhile(site, node, lambda part=part: tx.add("main", part))  # type: ignore[misc]
        tx.add("main", lines("mixed", TRIPLES // 2, TRIPLES // 2))
        tx.put("t", "k", "large")
        tx.publish("q", b"done")
        assert (count(db, "mixed"), db.queue("q", min_lsn="latest")) == (0, [])
        killed_meanwhile(site, "w4", lambda: committed(tx))
        assert [message.body for message in db.queue("q", min_lsn="latest")] == [b"done"]
    with site.client("m2", timeout=WAIT_S) as db:
        site.await_everywhere(db)
        # What others removed after its place is gone, and nothing else.
        assert TRIPLES - 102 <= count(db, "mixed") <= TRIPLES
        assert count(db, "killed-m1") == count(db, "killed-w3") == 2_000
        assert db.range(TABLE, min_lsn="latest") == []
    assert others.written > 0
    site.until(lambda: len(site.fingerprints()) == 1, "all copies are equal")


def test_a_long_message_is_given_once_whoever_is_killed(site: TxSite) -> None:
    film = os.urandom(3_000_000)
    with site.client("m2", "m3", timeout=WAIT_S) as db:
        for node in ("m1", "w3", "m1b"):
            tx = db.large_transaction(timeout=COMMIT_S)
            killed_meanwhile(site, node, lambda tx=tx: tx.publish("films", io.BytesIO(film), "video/mp4"))  # type: ignore[misc]
            killed_meanwhile(site, "w4", lambda tx=tx: committed(tx))  # type: ignore[misc]
        assert [message.size for message in db.queue("films", min_lsn="latest")] == [len(film)] * 3
        for node in ("w3", "w4"):
            with db.transaction(timeout=COMMIT_S) as taking:
                message = taking.accept("films", wait=WAIT_S, bodies=False)
                assert message is not None
                found: list[bytes] = []
                killed_meanwhile(site, node, partial(read_body, db, message.id, found))
                assert b"".join(found) == film
        assert [message.body for message in db.consume("films", count=1, wait=WAIT_S)] == [film]
        assert (db.queue("films", min_lsn="latest"), db.range(TABLE, min_lsn="latest")) == ([], [])
    site.until(lambda: len(site.fingerprints()) == 1, "all copies are equal")


@pytest.mark.campaign
def test_hundreds_of_mib_whoever_is_killed(site: TxSite, covered: Callable[[str], None]) -> None:
    """One INSERT DATA of ``BROKERHA_LARGE_MIB``, and three quarters of that as one message, each process killed while they are handed over."""
    mib = int(os.environ.get("BROKERHA_LARGE_MIB", "400"))
    # Each line has 45 bytes or so.
    triples, film = mib * 1024 * 1024 * 10 // 448, Film(mib * 1024 * 1024 * 3 // 4)
    with site.client("m2", "m3", timeout=COMMIT_S) as db, Others(site) as others, Peaks(site) as peaks:
        begun_s = time.monotonic()
        before = db.size("main", min_lsn="latest")
        tx = db.large_transaction(timeout=MAKE_ANEW_S)
        with Killing(site, mib / 8) as kills:
            assert db.load("main", Insertion(triples), "ru", inside=tx).statements == triples
        staged_s = time.monotonic() - begun_s
        killed_meanwhile(site, "w4", lambda: committed(tx))
        covered(
            f"{triples} triples in {tx.parts} parts: staged in {staged_s:.0f} s with {kills.done} kills, committed in {time.monotonic() - begun_s - staged_s:.0f} s"
        )
        begun_s = time.monotonic()
        with Killing(site, 5.0) as kills:
            tx = db.large_transaction(timeout=COMMIT_S)
            tx.publish("films", film, "video/mp4")
        killed_meanwhile(site, "w3", lambda: committed(tx))
        published_s = time.monotonic() - begun_s
        with db.transaction(timeout=3600) as taking, Killing(site, 5.0) as while_read:
            message = taking.accept("films", wait=WAIT_S, bodies=False)
            assert message is not None
            assert message.size == film.size
            digest = hashlib.blake2b()
            read_all(db, message.id, digest)
        assert digest.digest() == film.digest.digest()
        covered(
            f"a message of {film.size} bytes in {tx.parts} parts: published in {published_s:.0f} s with {kills.done} kills, read with {while_read.done}"
        )
        assert (db.queue("films", min_lsn="latest"), db.range(TABLE, min_lsn="latest")) == ([], [])
        # Others remove some of what was there before.
        assert before - 103 + triples <= db.size("main", min_lsn="latest") <= before + triples
    covered(f"anonymous memory at most, MiB: {', '.join(f'{node} {most:.0f}' for node, most in sorted(peaks.most.items()))}")
    covered(
        f"beside it {others.written} small writes, the longest {others.longest_s:.1f} s, and {len(others.faults)} that were not answered"
    )
    site.until(lambda: len(site.fingerprints()) == 1, "all copies are equal", MAKE_ANEW_S)


class Insertion(io.BytesIO):
    """An INSERT DATA of so many triples, made as it is read."""

    def __init__(self, triples: int) -> None:
        super().__init__()
        self._pieces = self._made(triples)
        self._rest = b""

    def _made(self, triples: int) -> Iterator[bytes]:
        yield b"PREFIX huge: <urn:huge:>\nINSERT DATA {\n"
        for first in range(0, triples, 1_000):
            yield lines("huge", first, min(1_000, triples - first)).encode()
        yield b"}\n"

    def read(self, size: int | None = -1) -> bytes:
        while size and not self._rest and (piece := next(self._pieces, b"")):
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


class Film(io.BytesIO):
    """So many bytes, made as they are read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.digest = hashlib.blake2b()
        self._random = random.Random(1)
        self._left = size

    def read(self, size: int | None = -1) -> bytes:
        data = self._random.randbytes(min(self._left if size is None or size < 0 else size, self._left))
        self._left -= len(data)
        self.digest.update(data)
        return data


class Killing:
    """Kills each process of a site once, until the block is left: the next one so long after the last is back."""

    def __init__(self, site: TxSite, pause_s: float) -> None:
        self._pause_s = pause_s
        self._site = site
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for node in self._site.nodes:
            if self._stop.wait(self._pause_s):
                return
            self._site.kill(node)
            self._site.start(node)
            self._site.await_ready(node, within_s=READY_S)
            self._site.await_primary()
            self.done += 1


class Peaks:
    """The most memory of each process that was seen in the block, of its own, in MiB."""

    def __init__(self, site: TxSite) -> None:
        self._site = site
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.most: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            for node in self._site.nodes:
                # One that was killed just now has none.
                with contextlib.suppress(KeyError, OSError, StopIteration):
                    self.most[node] = max(self.most.get(node, 0.0), self._site.memory_mb(node))


def read_all(db: brokerha.Session, message_id: str, digest: Any) -> None:
    """Read the body of a message piece by piece, each again when who gave it was killed."""
    number, count = 0, 1
    while number < count:
        with contextlib.suppress(TimedOut, NotReady, Unreachable):
            answer = db.read("message", "films", {"id": message_id, "number": number}, "latest")
            _, _, count, data = msgpack.unpackb(answer.body)
            digest.update(data)
            number += 1


def read_body(db: brokerha.Session, message_id: str, found: list[bytes]) -> None:
    """Read the body of a message, again when who gave it was killed."""
    while not found:
        with contextlib.suppress(TimedOut, NotReady, Unreachable):
            found += list(db.message_body("films", message_id, min_lsn="latest"))


def killed_meanwhile(site: TxSite, node: str, act: Callable[[], object]) -> None:
    """Do something while a process is killed, and started again."""

    def kill() -> None:
        site.kill(node)
        site.start(node)

    killer = threading.Timer(0.2, kill)
    killer.start()
    act()
    killer.join()
    site.await_ready(node, within_s=READY_S)
    site.await_primary()


def committed(tx: LargeTransaction) -> None:
    assert tx.commit().lsn > 0
