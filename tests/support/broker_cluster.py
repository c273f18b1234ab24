"""A RabbitMQ cluster of our own on loopback: private nodes (private_broker.py) that share a port mapper and a cookie.

    with BrokerCluster(3) as cluster:
        url = cluster.create_vhost("orders")    # amqp://guest:guest@127.0.0.1:15101/orders;amqp://...
        cluster.nodes[0].kill()                 # as any private broker

Partitions are handled as `pause_minority` says: a node that does not see most of the others stops serving.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.support.free_ports import free_ports
from tests.support.owned_processes import FOLDER_PREFIX, home_of, kill_members, write_owner
from tests.support.private_broker import Membership, PrivateBroker


class BrokerCluster:
    """So many nodes, started one after the other; ``with`` it."""

    def __init__(self, size: int = 3, scripts: Path | None = None) -> None:
        self._membership = Membership(secrets.token_hex(16), free_ports(1), [])
        self.nodes = [PrivateBroker(scripts, membership=self._membership) for _ in range(size)]
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))

    def __enter__(self) -> Self:
        write_owner(self._folder)
        home_of(self._folder).mkdir()
        self._epmd = subprocess.Popen(
            [*self.nodes[0].inside, "epmd", "-port", str(self._membership.epmd), "-address", "127.0.0.1"],
            env=os.environ | {"HOME": str(home_of(self._folder))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            for node in self.nodes:
                node.start()
                self._membership.members.append(node.name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all nodes and the port mapper; their folders go."""
        for node in self.nodes:
            node.stop()
        self._epmd.kill()
        self._epmd.wait()
        kill_members(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    def cut_off(self, place: int) -> None:
        """Part this node from all others, as a network does that is cut between them; clients reach all of them."""
        node, others = self._parted(place)
        node.ctl("eval", f"[begin erlang:set_cookie(N, parted), erlang:disconnect_node(N) end || N <- {others}].")

    def join_again(self, place: int) -> None:
        """End `cut_off`."""
        node, others = self._parted(place)
        node.ctl("eval", f"[erlang:set_cookie(N, erlang:get_cookie()) || N <- {others}].")

    def _parted(self, place: int) -> tuple[PrivateBroker, str]:
        node = self.nodes[place]
        return node, "[" + ", ".join(f"'{other.name}'" for other in self.nodes if other is not node) + "]"

    def create_vhost(self, name: str) -> str:
        """Make a virtual host; its URL names all nodes."""
        self.nodes[0].create_vhost(name)
        return ";".join(node.url_of(name) for node in self.nodes)
