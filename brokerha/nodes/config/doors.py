"""Keys of the section ``[cluster]`` about the HTTP doors of all nodes: users, TLS, and who may reach them at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from brokerha.nodes.config.keys import Key

NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorKeys:
    """Part of `ClusterConfig`."""

    http_users: Annotated[
        str,
        Key(
            "File with the users of the HTTP doors (docs/security.md), made by brokerha user. It is read again when it changes. Without it "
            "everybody who reaches a door may do everything.",
            default_text=NONE,
        ),
    ] = ""
    http_certificate: Annotated[
        str,
        Key(
            "Certificate of a door as PEM, with those between it and the authority. {id} is the node's id. With it all doors speak https.",
            default_text=NONE,
        ),
    ] = ""
    http_key: Annotated[str, Key("Key of that certificate as PEM, without a password. {id} is the node's id.", default_text=NONE)] = ""
    http_plain: Annotated[
        bool,
        Key(
            "Whether a door may listen on another address than loopback without TLS or without users, because a proxy or a private network keeps "
            "others out."
        ),
    ] = False
    http_origins: Annotated[
        str,
        Key(
            "Origins of pages that may change something and read answers besides those of the door's own address, as https://brokerha.example.org, with "
            "commas between several: for a proxy through which browsers reach the doors by another name, and for pages of other sites (CORS).",
            default_text=NONE,
        ),
    ] = ""
    http_prefix: Annotated[
        str,
        Key(
            "All paths are served below this one too, as /rdf4j-server: for clients that can only be given the address of an RDF4J server.",
            default_text=NONE,
        ),
    ] = ""
