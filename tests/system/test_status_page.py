"""The status page in a real browser: it is live, keeps to its policy, fits every width, tells splits, and needs no mouse."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.cli.machine.demonstration import demo_config
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from tests.support.browser import DESKTOP, PHONE, Browser, browsing, found_browser
from tests.support.page_pictures import Cut, cell, writing

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(found_browser() is None, reason="no chromium-headless-shell here")]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(demo_config("embedded://status-page", tmp_path_factory.mktemp("page"))) as running:
        running.client("m1").put("ready", b"k", b"v", timeout=WAIT_S)
        yield running


@pytest.fixture
def browser(cluster: EmbeddedCluster) -> Iterator[Browser]:
    with looking_at(cluster) as opened:
        yield opened


@contextlib.contextmanager
def looking_at(cluster: EmbeddedCluster) -> Iterator[Browser]:
    """A browser before the page of the first master."""
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


CONTROLS = """
[...document.querySelectorAll('a[href], button:not(:disabled), input, select, textarea, summary, [tabindex="0"]')]
  .filter((each) => each.checkVisibility()).map((each, place) => { each.dataset.place = place; return String(place); })
"""
"""Everything that can be used, numbered in the order of the page."""
FOCUSED = """
(() => {
  const one = document.activeElement, style = getComputedStyle(one), at = one.getBoundingClientRect();
  const isMarked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  return [one.dataset.place ?? '', isMarked && at.right > 0 && at.bottom > 0];
})()
"""
"""Where the keys go, and whether one sees it."""


FAINT = """
(() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const behind = (one) => {
    for (let each = one; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const contrast = (one) => {
    const lights = [light(numbers(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
    return (lights[0] + 0.05) / (lights[1] + 0.05);
  };
  const isText = (one) => [...one.childNodes].some((each) => each.nodeType === Node.TEXT_NODE && each.textContent.trim());
  return [...document.querySelectorAll('body *')].filter((each) => each.checkVisibility() && isText(each) && !each.disabled && contrast(each) < 4.5)
    .map((each) => each.outerHTML.slice(0, 80));
})()
"""
"""Texts that stand out less from what is behind them than WCAG 2 asks for (4.5 to 1)."""
BADGES = """
for (const kind of ['good', 'warn', 'bad', 'none']) {
  const badge = document.createElement('span');
  badge.className = 'badge'; badge.dataset.kind = kind; badge.textContent = kind;
  document.querySelector('main').append(badge);
}
0
"""
"""All colours of states, also of those that no node is in."""


def beyond(width: int) -> str:
    """JavaScript: what lies beyond the right edge, as texts."""
    return f"""[document.documentElement.scrollWidth > {width} ? 'the page' : '',
      ...[...document.querySelectorAll('body *')].filter((each) => each.getBoundingClientRect().right > {width} + 1).map((each) => each.outerHTML.slice(0, 80))
    ].filter(Boolean)"""


def assert_it_fits(browser: Browser) -> None:
    """At every width, with all that is shown now."""
    for width in (320, PHONE[0], 600, 768, 1024, 1025, DESKTOP[0]):
        browser.resize((width, 844))
        assert browser.value(beyond(width)) == [], width
    browser.resize(DESKTOP)


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


def assert_each_fingerprint_is_one_line(browser: Browser) -> None:
    """However much stands beside it."""
    prints = "[...document.querySelectorAll('#masters-table .code, #workers-table .code')]"
    for width in (320, 1025, DESKTOP[0]):
        browser.resize((width, 844))
        assert browser.value(f"Math.max(...{prints}.map((each) => each.getClientRects().length))") == 1, width
    browser.resize(DESKTOP)


def test_it_fits_every_width_without_sideways_scrolling(browser: Browser) -> None:
    browser.until("document.querySelectorAll('#log-table tbody tr').length > 0", WAIT_S)
    assert_it_fits(browser)


def test_every_control_is_reached_by_keys_and_one_sees_where_one_is(browser: Browser) -> None:
    browser.until("document.querySelectorAll('#log-table tbody tr').length > 0", WAIT_S)
    controls = browser.value(CONTROLS)
    reached = []
    for _ in controls:
        browser.press("Tab")
        place, is_seen = browser.value(FOCUSED)
        assert is_seen, browser.value("document.activeElement.outerHTML")
        reached.append(place)

    # In the order in which one reads
    assert reached == controls


def test_the_skip_link_leads_past_the_navigation(browser: Browser) -> None:
    browser.press("Tab")
    assert "Skip" in browser.value("document.activeElement.innerText")
    browser.press("Enter")
    browser.until("document.activeElement.id === 'nodes'", WAIT_S)
    browser.press("Tab")
    assert browser.value("document.activeElement.closest('nav') === null")


def test_it_can_be_used_by_ear(browser: Browser) -> None:
    spoken = browser.spoken()
    assert {"heading", "table", "link", "button", "textbox", "navigation", "main", "columnheader", "rowheader"} <= {
        role for role, _ in spoken
    }
    # What has a name when one sees it has one when one hears it
    assert [role for role, name in spoken if role in {"table", "link", "button", "textbox", "region", "image"} and not name] == []


def test_every_text_can_be_read_in_the_light_and_in_the_dark(browser: Browser) -> None:
    browser.until("document.querySelectorAll('#log-table tbody tr').length > 0", WAIT_S)
    browser.value(BADGES)
    for scheme, size in (("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)):
        browser.colours(scheme)
        browser.resize(size)
        assert browser.value(FAINT) == [], (scheme, size)


def test_the_log_can_be_read(cluster: EmbeddedCluster, browser: Browser, tmp_path: Path) -> None:
    written = cluster.client("m1").put("prices", b"seen", b"1", timeout=WAIT_S)
    browser.value("document.getElementById('log-newest').click(); 0")
    browser.until(f"document.getElementById('log-table').innerText.includes('{written.txid}')", WAIT_S)
    browser.picture(tmp_path / "log.png")


def test_a_split_is_told_with_what_was_given_up(tmp_path: Path) -> None:
    config = dataclasses.replace(demo_config("embedded://status-page-split", tmp_path / "data"), split_recovery="simple")
    with EmbeddedCluster(config) as cluster, looking_at(cluster) as browser:
        # Given a cluster that was well all the time
        browser.until("document.getElementById('strategies-table').innerText.includes('simple')", WAIT_S)
        assert "its file" in browser.value("document.getElementById('strategies-table').innerText")
        assert "None that m1 remembers" in browser.text()
        # When its sites go on apart, and come together again
        cut = Cut(cluster)
        with writing(cluster, ("m1", "m2", "m3")):
            cut.begin()
            browser.until(f"({cell('m1', 1)}).startsWith('split') && Number({cell('m1', 3)}.replaceAll(',', '')) > 30", 2 * WAIT_S)
            assert_each_fingerprint_is_one_line(browser)
            assert_it_fits(browser)
            cut.end()
        browser.until("document.getElementById('state').innerText === 'ok'", 2 * WAIT_S)
        # Then the page tells how often, how many, and of each what became of it
        browser.until("document.querySelector('#book-table button') !== null", WAIT_S)
        browser.until(
            "/went back to LSN [0-9,]+, [0-9,]+ given up/.test(document.getElementById('strategies-table').innerText)", WAIT_S
        )
        browser.value("document.querySelector('#book-table button').focus(); 0")
        browser.press("Enter")
        browser.until("document.querySelectorAll('#given-up-table tbody tr').length > 0", WAIT_S)
        assert browser.value("document.activeElement.id") == "given-up-title"
        first = browser.value("document.querySelector('#given-up-table tbody tr').innerText")
        assert any(effect in first for effect in ("executed again", "same place", "re-ordered"))
        assert_it_fits(browser)
        # And where one came from is where one goes back to
        browser.value("document.getElementById('given-up-close').click(); 0")
        assert "Show" in browser.value("document.activeElement.innerText")
        assert not browser.value("document.getElementById('given-up').checkVisibility()")
