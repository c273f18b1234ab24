"""What a connection says of itself to the broker: who reads the dashboard sees which process of which cluster it is.

    Identity("m1 master in", "master", "m1", "orders").properties()

Every connection of brokerha has a name and a role; node and cluster are said where there are any. The broker believes it
unseen: nothing may be allowed by it.
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
    """One connection; ``name`` is what the dashboard shows first."""

    name: str
    role: str
    node: str = ""
    cluster: str = ""

    def properties(self) -> dict[str, str]:
        """The client properties of the connection, beside those that the library sets itself."""
        said = {"role": self.role, "node": self.node, "cluster": self.cluster}
        return {
            "connection_name": self.name,
            "product": PRODUCT,
            "version": VERSION,
            # Else the library's own stands beside our name.
            "product_version": VERSION,
            **{name: text for name, text in said.items() if text},
        }
