"""Hosts as people write them in addresses and URLs."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host; an empty host means every address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "", "0.0.0.0", "10.0.0.1", "example.org")]
    [True, True, True, False, False, False, False]
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
