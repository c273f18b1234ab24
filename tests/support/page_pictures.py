"""Takes the pictures of the status page in docs/pictures: ``python -m tests.support.page_pictures [FOLDER]``.

A cluster of three sites in this process, and a real browser before the door of its first master. The picture of a split needs
another one, in which each side goes on and one of them gives up what it did:

    page-healthy      writes through all masters                  page-site-down    the third site is stopped
    page-catching-up  it comes back and takes what it missed      page-split        its masters do not hear it, and it not them
    page-phone        the healthy one on a phone, dark            page-given-up     the split is over: what became of what was given up
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from brokerha.cli.machine.demonstration import demo_config
from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import BrokerhaError
from brokerha.model.wire.messages import Outgoing
from tests.support.browser import DESKTOP, PHONE, Browser, browsing
from tests.support.small_png import shrink

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
AWAY = "m3"
LIVELY_S = 45.0
"""How long it works before the first picture, so that the charts show something."""
MISSED_S = 60.0
_NUMBERS = itertools.count(1)
"""Each write is news: a value that is there already changes neither content nor fingerprint."""
BEHIND = 300
"""So many transactions are no lag of a moment."""


class Cut:
    """Holds back what goes between one master and the others, as the outboxes do while brokers do not hear each other."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._held: list[tuple[Any, Outgoing]] = []
        self._is_cut = False
        self._lock = threading.Lock()
        for name, node in cluster.masters.items():
            node.transport.send = self._sender(name, node.transport.send)  # type: ignore[method-assign]

    def _sender(self, name: str, send: Any) -> Any:
        def checked(messages: Iterable[Outgoing]) -> None:
            through = []
            with self._lock:
                for message in messages:
                    others = {"m1", "m2", "m3"} - {name}
                    is_held = self._is_cut and message.to in others and AWAY in {name, message.to}
                    if is_held:
                        self._held.append((send, message))
                    else:
                        through.append(message)
            send(through)

        return checked

    def begin(self) -> None:
        with self._lock:
            self._is_cut = True

    def end(self) -> None:
        with self._lock:
            self._is_cut, held, self._held = False, self._held, []
            for send, message in held:
                send([message])


@contextlib.contextmanager
def writing(
    cluster: EmbeddedCluster, masters: Iterable[str], every_s: float = 0.05, apps: Mapping[str, Client] | None = None
) -> Iterator[None]:
    """Write through these masters, and by these clients, a little at a time."""
    is_over = threading.Event()
    clients = {**{master: cluster.client(master) for master in masters}, **(apps or {})}

    def write(name: str) -> None:
        db = clients[name]
        while not is_over.wait(every_s):
            with contextlib.suppress(BrokerhaError):
                db.put("prices", f"{name}-{next(_NUMBERS)}".encode(), b"9.90", timeout=2)

    threads = [threading.Thread(target=write, args=(name,), daemon=True) for name in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(5)


def cell(node: str, column: int) -> str:
    """JavaScript: the text of a cell in the table of masters."""
    rows = "[...document.querySelectorAll('#masters-table tbody tr')]"
    return f"{rows}.find((row) => row.children[0].innerText.includes('{node}'))?.children[{column}].innerText ?? ''"


def lags_of(master: str) -> str:
    """JavaScript: how far its workers are behind, as texts."""
    rows = "[...document.querySelectorAll('#workers-table tbody tr')]"
    return f"{rows}.filter((row) => row.children[1].innerText.includes('{master}')).map((row) => row.children[4].innerText)"


def take(browser: Browser, folder: Path, name: str) -> None:
    """The upper part of the page, to the end of the charts."""
    file = folder / f"page-{name}.png"
    browser.picture(file, whole=False)
    print(f"{file.name} {shrink(file):,} bytes", flush=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    photograph("simple", scene_of_a_split, folder)
    photograph("quorum", scenes, folder)


def photograph(split_recovery: str, story: Callable[[Browser, EmbeddedCluster, Path], None], folder: Path) -> None:
    """Run a cluster, open its page, and tell the story."""
    with tempfile.TemporaryDirectory() as data:
        config = demo_config(f"embedded://pictures-{split_recovery}", Path(data))
        config = dataclasses.replace(config, name="orders", split_recovery=split_recovery)
        with EmbeddedCluster(config) as cluster:
            server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
            server.start()
            try:
                with browsing(f"{server.url}/", (DESKTOP[0], 1500)) as browser:
                    story(browser, cluster, folder)
            finally:
                server.stop()


def scenes(browser: Browser, cluster: EmbeddedCluster, folder: Path) -> None:
    """Well, one site down, and back again: each state is waited for and photographed."""
    with writing(cluster, ("m1", "m2", "m3")):
        time.sleep(LIVELY_S)
        browser.until("document.getElementById('state').innerText === 'ok'")
        take(browser, folder, "healthy")
    browser.colours("dark")
    browser.resize(PHONE, scale=2)
    take(browser, folder, "phone")
    browser.colours("light")
    browser.resize((DESKTOP[0], 1500))

    site = [AWAY, *(worker.id for worker in cluster.config.workers if worker.master == AWAY)]
    for node in site:
        cluster.stop_node(node)
    are_ok = " && ".join(f"({cell(master, 1)}).startsWith('ok')" for master in ("m1", "m2"))
    with writing(cluster, ("m1", "m2"), 0.01):
        browser.until(f"{are_ok} && ({cell(AWAY, 1)}).includes('unreachable')", 90)
        take(browser, folder, "site-down")
    # It misses so much that the page, which asks every two seconds, sees how it takes that.
    with writing(cluster, ("m1", "m2") * 8, 0.001):
        time.sleep(MISSED_S)
        for node in site:
            cluster.start_node(node)
        behind = f"[{cell(AWAY, 4)}, ...{lags_of(AWAY)}].some((lag) => Number(lag.replaceAll(',', '')) > {BEHIND})"
        browser.until(f"/to take over/.test({cell(AWAY, 1)}) || {behind}", 90)
        take(browser, folder, "catching-up")


def scene_of_a_split(browser: Browser, cluster: EmbeddedCluster, folder: Path) -> None:
    """Both sides go on for themselves, hear each other again, and one goes back: the page tells both."""
    browser.until("document.getElementById('state').innerText === 'ok'", 60)
    cut = Cut(cluster)
    with writing(cluster, ("m1", "m2", "m3")):
        browser.until(f"Number({cell('m1', 3)}.replaceAll(',', '')) > 60", 120)
        cut.begin()
        browser.until(f"({cell('m1', 1)}).startsWith('split')", 120)
        time.sleep(3)
        take(browser, folder, "split")
        cut.end()
    browser.until("document.getElementById('state').innerText === 'ok'", 120)
    browser.resize((DESKTOP[0], 800))
    browser.until("document.querySelector('#book-table button') !== null")
    browser.value("document.querySelector('#book-table button').click(); 0")
    browser.until("document.querySelectorAll('#given-up-table tbody tr').length > 0")
    browser.value("document.getElementById('splits-title').scrollIntoView({ behavior: 'instant' }); 0")
    take(browser, folder, "given-up")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
