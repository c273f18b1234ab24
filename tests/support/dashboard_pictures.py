"""Takes the pictures of RabbitMQ's dashboard in docs/pictures: ``python -m tests.support.dashboard_pictures [FOLDER]``.

A RabbitMQ of our own with its management plugin, a cluster of three sites that works, an app that writes, and a real browser:

    rabbitmq-overview       what is ready and unacknowledged, and how the broker is
    rabbitmq-queues         all queues of the cluster
    rabbitmq-inbox          one inbox
    rabbitmq-connections    who is connected
    rabbitmq-connection     what one of them says of itself
    rabbitmq-exchanges      where messages enter
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from brokerha import connect
from brokerha.cli.machine.demonstration import demo_config
from brokerha.embedded import EmbeddedCluster
from tests.support.broker_source import local_scripts
from tests.support.browser import Browser, browsing
from tests.support.page_pictures import FOLDER, writing
from tests.support.private_broker import PrivateBroker
from tests.support.small_png import shrink

VHOST = "orders"
SIZE = (1280, 900)
LOG_IN = """
document.querySelector('input[name=username]').value = 'guest';
document.querySelector('input[name=password]').value = 'guest';
document.querySelector('input[type=submit]').click();
0
"""
LIVELY_S = 40.0
"""The dashboard's charts show the last minute."""
SETTLED_S = 6.0
"""It asks every five seconds."""
CHOOSE_VHOST = f"$('#show-vhost').val({VHOST!r}).trigger('change'); 0"
"""Else the tables are full of what other virtual hosts have."""
OPEN = "document.querySelectorAll('.section-hidden > h2, .section-invisible > h2').forEach((each) => each.click()); 0"
"""Sections that are folded are opened: pictures show what the page describes."""
CONNECTION = """
[...document.querySelectorAll('a[href^="#/connections/"]')].find((each) => each.closest('tr').innerText.includes('m1 master in')).hash
"""
"""The address of one connection, which has ports in it; asked on the page of all of them."""


class Place(NamedTuple):
    """Where a picture is taken."""

    address: str
    """Behind the dashboard's own."""
    shows: str
    """What has to be there."""
    below: str = ""
    """The heading of the section that is shown at the top; the page's own if there is none."""


PLACES = {
    "overview": Place("#/", "Queued messages"),
    "queues": Place(f"#/queues?vhost={VHOST}", "brokerha.m1.sync"),
    "inbox": Place(f"#/queues/{VHOST}/{quote('brokerha.m1.data')}", "Consumers"),
    "exchanges": Place("#/exchanges", "brokerha.sync"),
    "connections": Place("#/connections", "m1 master in"),
}
PROPERTIES = "Client properties"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with PrivateBroker(local_scripts(), rates_mode="basic") as broker, tempfile.TemporaryDirectory() as data:
        url = broker.create_vhost(VHOST)
        # Else the dashboard names the machine.
        broker.ctl("set_cluster_name", VHOST)
        config = dataclasses.replace(demo_config(url, Path(data)), name="orders")
        door = broker.management_url.replace("guest:guest@", "")
        with EmbeddedCluster(config) as cluster, connect(url) as app, writing(cluster, ("m1", "m2", "m3"), 0.02, {"app": app}):
            time.sleep(LIVELY_S)
            with browsing(f"{door}/", SIZE) as browser:
                browser.until("document.querySelector('input[name=username]') !== null", 60)
                browser.value(LOG_IN)
                browser.until("document.body.innerText.includes('Overview')", 60)
                browser.until("document.getElementById('show-vhost') !== null", 60)
                browser.value(CHOOSE_VHOST)
                for name, place in PLACES.items():
                    _take(browser, place, folder / f"rabbitmq-{name}.png")
                one = Place(browser.value(CONNECTION), PROPERTIES, PROPERTIES)
                _take(browser, one, folder / "rabbitmq-connection.png")


def _take(browser: Browser, place: Place, file: Path) -> None:
    browser.value(f"window.location.hash = {place.address!r}; 0")
    browser.until(f"document.body.innerText.includes({place.shows!r})", 60)
    browser.value(OPEN)
    time.sleep(SETTLED_S)
    headings = f"[...document.querySelectorAll('h1, h2')].find((each) => each.innerText.includes({place.below!r}))"
    browser.value(f"{headings}.scrollIntoView(); 0" if place.below else "scrollTo(0, 0); 0")
    browser.picture(file, whole=False)
    print(f"{file.name} {shrink(file):,} bytes", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
