"""The status page in a real browser: it is live, keeps to its policy, fits a phone, and can be used without a mouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.cli.demo_run import demo_config
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from tests.support.browser import DESKTOP, PHONE, Browser, browsing, found_browser

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(found_browser() is None, reason="no chromium-headless-shell here")]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(demo_config("embedded://status-page", tmp_path_factory.mktemp("page"))) as running:
        running.client("m1").put("ready", b"k", b"v", timeout=WAIT_S)
        yield running


@pytest.fixture
def browser(cluster: EmbeddedCluster) -> Iterator[Browser]:
    server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
    server.start()
    try:
        with browsing(f"{server.url}/", DESKTOP) as opened:
            opened.until("document.getElementById('state').innerText === 'ok'", WAIT_S)
            yield opened
            # It asked nobody else, and did nothing that its policy forbids
            assert opened.faults() == []
            assert all(url.startswith((server.url, "data:", "about:")) for url in opened.requested())
    finally:
        server.stop(1.0)


def test_it_shows_all_nodes_and_what_happens_while_one_looks(cluster: EmbeddedCluster, browser: Browser) -> None:
    for node in ("m1", "m2", "m3", "w1a", "w1b", "w2a", "w2b", "w3a", "w3b"):
        assert node in browser.text()
    lsn = cluster.client("m2").put("prices", b"sku", b"1", timeout=WAIT_S).lsn
    browser.until(f"document.getElementById('masters-table').innerText.includes('{lsn}')", WAIT_S)
    # And a worker that is stopped is told
    cluster.stop_node("w3b")
    browser.until("document.getElementById('workers-table').innerText.includes('unknown')", WAIT_S)
    cluster.start_node("w3b")
    browser.until("!document.getElementById('workers-table').innerText.includes('unknown')", WAIT_S)
    browser.until("document.getElementById('state').innerText === 'ok'", WAIT_S)


def test_it_fits_a_phone(browser: Browser) -> None:
    browser.resize(PHONE, scale=2)
    assert browser.value("document.documentElement.scrollWidth") <= PHONE[0]


def test_it_can_be_used_by_keyboard_and_by_ear(browser: Browser) -> None:
    seen = set()
    for _ in range(40):
        browser.press("Tab")
        seen.add(browser.value("document.activeElement.innerText || document.activeElement.name || document.activeElement.id"))
    assert {"Masters", "Workers", "Log"} <= seen
    roles = {role for role, _ in browser.spoken()}
    assert {"heading", "table", "link"} <= roles


def test_the_log_can_be_read(cluster: EmbeddedCluster, browser: Browser, tmp_path: Path) -> None:
    written = cluster.client("m1").put("prices", b"seen", b"1", timeout=WAIT_S)
    browser.value("document.getElementById('log-newest').click(); 0")
    browser.until(f"document.getElementById('log-table').innerText.includes('{written.txid}')", WAIT_S)
    browser.picture(tmp_path / "log.png")
