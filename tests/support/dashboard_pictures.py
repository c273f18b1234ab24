"""Takes the pictures of RabbitMQ's dashboard in docs/pictures: ``python -m tests.support.dashboard_pictures [FOLDER]``.

A RabbitMQ of our own with its management plugin, a cluster of three sites that works, and a real browser:

    rabbitmq-overview       what is ready and unacknowledged, and how the broker is
    rabbitmq-queues         all queues of the cluster
    rabbitmq-inbox          one inbox
    rabbitmq-connections    who is connected
    rabbitmq-exchanges      where messages enter
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from brokerha.cli.demo_run import demo_config
from brokerha.embedded import EmbeddedCluster
from tests.support.broker_source import local_scripts
from tests.support.browser import Browser, browsing
from tests.support.page_pictures import FOLDER, writing
from tests.support.private_broker import PrivateBroker

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
PLACES = {
    "overview": ("#/", "Queued messages"),
    "queues": (f"#/queues?vhost={VHOST}", "brokerha.m1.sync"),
    "inbox": (f"#/queues/{VHOST}/{quote('brokerha.m1.data')}", "Consumers"),
    "connections": ("#/connections", "m1 master in"),
    "exchanges": ("#/exchanges", "brokerha.sync"),
}
"""Where each picture is, and what has to be there."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with PrivateBroker(local_scripts()) as broker, tempfile.TemporaryDirectory() as data:
        url = broker.create_vhost(VHOST)
        # Else the dashboard names the machine.
        broker.ctl("set_cluster_name", VHOST)
        config = dataclasses.replace(demo_config(url, Path(data)), name="orders")
        door = broker.management_url.replace("guest:guest@", "")
        with EmbeddedCluster(config) as cluster, writing(cluster, ("m1", "m2", "m3"), 0.02):
            time.sleep(LIVELY_S)
            with browsing(f"{door}/", SIZE) as browser:
                browser.until("document.querySelector('input[name=username]') !== null", 60)
                browser.value(LOG_IN)
                browser.until("document.body.innerText.includes('Overview')", 60)
                for name, (place, text) in PLACES.items():
                    _take(browser, door, place, text, folder / f"rabbitmq-{name}.png")


def _take(browser: Browser, door: str, place: str, text: str, file: Path) -> None:
    browser.value(f"window.location.hash = {place!r}; 0")
    browser.until(f"document.body.innerText.includes({text!r})", 60)
    # Sections that are folded are opened: pictures show what the page describes.
    browser.value("[...document.querySelectorAll('.section-hidden > h2, .section-invisible > h2')].forEach((each) => each.click()); 0")
    time.sleep(SETTLED_S)
    browser.picture(file, whole=False)
    print(f"{file.name} {door}/{place}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
