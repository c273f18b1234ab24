"""The few calls of RabbitMQ's management interface that tests need: virtual hosts, queues, connections.

Works with any broker that has the management plugin: our private node, a container, or one named by the environment.
Each call has a deadline; an answer that is neither a success nor "already gone" raises httpx2.HTTPStatusError.

    management = Management("http://guest:guest@127.0.0.1:15672")
    management.create_vhost("test-1")
    management.purge_queues("test-1")       # -> ["brokerha.m1.sync", ...]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import httpx2

_NOT_FOUND = 404
_REPLY_WITHIN_S = 90.0
"""As long as a machine with other work may stand still; a broker that is gone is refused at once."""


class Management:
    """A client of one management interface; ``url`` carries user and password. Close it, or use it as a context."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.user = unquote(parts.username or "guest")
        self._http = httpx2.Client(
            base_url=f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}/api",
            auth=(self.user, unquote(parts.password or "guest")),
            timeout=_REPLY_WITHIN_S,
            trust_env=False,  # A proxy of this machine has no business on loopback.
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the HTTP connections."""
        self._http.close()

    def overview(self) -> dict[str, Any]:
        """What the broker says of itself: version, node, listeners."""
        answer: dict[str, Any] = self._request("GET", "/overview").json()
        return answer

    def create_vhost(self, name: str) -> None:
        """Makes a virtual host in which our user may do everything; fine if it is there already."""
        self._request("PUT", f"/vhosts/{_quoted(name)}", json={})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._request("PUT", f"/permissions/{_quoted(name)}/{_quoted(self.user)}", json=everything)

    def vhost(self, name: str) -> dict[str, Any]:
        """A virtual host, as the broker describes it."""
        answer: dict[str, Any] = self._request("GET", f"/vhosts/{_quoted(name)}").json()
        return answer

    def create_user(self, name: str, password: str) -> None:
        """Makes a user without any right; fine if it is there already."""
        self._request("PUT", f"/users/{_quoted(name)}", json={"password": password, "tags": ""})

    def delete_user(self, name: str) -> None:
        """Removes a user; fine if there is none."""
        self._request("DELETE", f"/users/{_quoted(name)}", missing_is_fine=True)

    def import_definitions(self, definitions: dict[str, Any]) -> None:
        """Makes everything that a definitions file lists; what is there already stays."""
        self._request("POST", "/definitions", json=definitions)

    def export_definitions(self) -> dict[str, Any]:
        """Everything of the broker that a definitions file can have."""
        answer: dict[str, Any] = self._request("GET", "/definitions").json()
        return answer

    def set_permissions(self, vhost: str, user: str, configure: str, write: str, read: str) -> None:
        """Gives a user its rights in a virtual host, as patterns of whole names."""
        rights = {"configure": configure, "write": write, "read": read}
        self._request("PUT", f"/permissions/{_quoted(vhost)}/{_quoted(user)}", json=rights)

    def set_parameter(self, vhost: str, component: str, name: str, value: dict[str, Any]) -> None:
        """Sets a parameter of a plugin, such as a federation upstream; 400 where the plugin is not enabled."""
        path = f"/parameters/{_quoted(component)}/{_quoted(vhost)}/{_quoted(name)}"
        self._request("PUT", path, json={"value": value})

    def set_policy(self, vhost: str, name: str, definition: dict[str, Any], pattern: str, apply_to: str) -> None:
        """Sets a policy for what is named like the pattern; ``apply_to`` is ``queues`` or ``exchanges``."""
        body = {"pattern": pattern, "apply-to": apply_to, "definition": definition}
        self._request("PUT", f"/policies/{_quoted(vhost)}/{_quoted(name)}", json=body)

    def delete_vhost(self, name: str) -> None:
        """Removes a virtual host with all that is in it; its connections are closed by the broker."""
        self._request("DELETE", f"/vhosts/{_quoted(name)}", missing_is_fine=True)

    def queues(self, vhost: str) -> list[dict[str, Any]]:
        """All queues of a virtual host, as the broker describes them (name, type, arguments, exclusive, ...)."""
        answer: list[dict[str, Any]] = self._request("GET", f"/queues/{_quoted(vhost)}").json()
        return answer

    def purge_queues(self, vhost: str) -> list[str]:
        """Empties every queue, and returns their names. Streams cannot be purged, exclusive queues not by others."""
        return self._for_each_queue(vhost, "/contents", lambda queue: queue.get("type") != "stream" and not queue.get("exclusive"))

    def delete_queues(self, vhost: str) -> list[str]:
        """Deletes every queue and stream that is not exclusive, and returns their names."""
        return self._for_each_queue(vhost, "", lambda queue: not queue.get("exclusive"))

    def connections(self, vhost: str | None = None) -> list[dict[str, Any]]:
        """Client connections to a virtual host (None: to all), as the broker describes them."""
        path = "/connections" if vhost is None else f"/vhosts/{_quoted(vhost)}/connections"
        answer: list[dict[str, Any]] = self._request("GET", path).json()
        return answer

    def close_connections(self, vhost: str | None = None, reason: str = "closed by a test") -> int:
        """Has the broker close the connections of a virtual host (None: of all). Returns how many.

        The interface learns of a new connection up to five seconds late, and does not see it before.
        """
        chosen = [each["name"] for each in self.connections(vhost)]
        for name in chosen:
            self._request("DELETE", f"/connections/{_quoted(name)}", headers={"X-Reason": reason}, missing_is_fine=True)
        return len(chosen)

    def _for_each_queue(self, vhost: str, what: str, chosen: Callable[[dict[str, Any]], bool]) -> list[str]:
        names = [queue["name"] for queue in self.queues(vhost) if chosen(queue)]
        for name in names:
            self._request("DELETE", f"/queues/{_quoted(vhost)}/{_quoted(name)}{what}", missing_is_fine=True)
        return names

    def _request(self, method: str, path: str, *, missing_is_fine: bool = False, **options: Any) -> httpx2.Response:
        response = self._http.request(method, path, **options)
        if not (missing_is_fine and response.status_code == _NOT_FOUND):
            response.raise_for_status()
        return response


def _quoted(name: str) -> str:
    return quote(name, safe="")
