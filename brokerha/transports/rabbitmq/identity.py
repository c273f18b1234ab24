"""The description of a connection for the broker: the dashboard shows which process of which cluster it belongs to.

    Identity("m1 master in", "master", "m1", "orders").properties()

Every connection of brokerha has a name and a role, and a node and a cluster where they exist. The broker does not verify these, so
no permission can depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from brokerha.model import VERSION

PRODUCT: Final = "brokerha"
CLIENT_ROLE: Final = "client"
"""An app that writes or reads."""
TOOL_ROLE: Final = "tool"
"""A command that looks at the broker, or reads a log stream."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One connection; the dashboard shows ``name`` first."""

    name: str
    role: str
    node: str = ""
    cluster: str = ""

    def properties(self) -> dict[str, str]:
        """Return the client properties of the connection, besides those of the library."""
        said = {"role": self.role, "node": self.node, "cluster": self.cluster}
        return {
            "connection_name": self.name,
            "product": PRODUCT,
            "version": VERSION,
            # Otherwise the library's own version would stand beside this name.
            "product_version": VERSION,
            **{name: text for name, text in said.items() if text},
        }
