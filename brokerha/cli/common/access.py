"""Which cluster a command talks to.

    --url, or -c, or BROKERHA_URL, or ./cluster.toml: the first that is given; --url and -c together are a mistake.

A cluster file is turned into the HTTP addresses of its masters; a file without any is reached through its broker.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from brokerha.cli.common.options import DEFAULT_CONFIG
from brokerha.model.errors import ConfigurationError, Unreachable

if TYPE_CHECKING:
    from tenacity import Retrying

    from brokerha.nodes.config.cluster import ClusterConfig

URL_VARIABLE = "BROKERHA_URL"


def cluster_file(config: Path | None) -> ClusterConfig:
    """The cluster file of ``-c``, or the one of the present folder. Raises ConfigurationError, typer.BadParameter."""
    from brokerha.nodes.config.cluster import load_config

    if config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(f"which cluster? write -c FILE; there is no {DEFAULT_CONFIG} in this folder")
    return load_config(config or DEFAULT_CONFIG, os.environ)


def master_urls(cluster: ClusterConfig) -> dict[str, str]:
    """Addresses of each master that has any, its backups' after its own: one of them may be primary."""
    known = cluster.http_urls()
    urls: dict[str, str] = {}
    for master in cluster.masters_to_ask:
        own = [known[process] for process in cluster.processes_of(master.id) if process in known]
        if own:
            urls[master.id] = ",".join(own)
    return urls


def addresses(config: Path | None, url: str | None) -> dict[str, str]:
    """Addresses of nodes that can be asked, by node id (or by themselves), the masters first.

    Raises typer.BadParameter when nothing says which cluster is meant, ConfigurationError.
    """
    is_from_environment = url is not None and url == os.environ.get(URL_VARIABLE)
    if url is not None and config is not None and not is_from_environment:
        raise typer.BadParameter("--url and -c are two ways to say which cluster: write one of them")
    if url is not None and config is None:
        return {url: url}
    if config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(f"which cluster? write -c FILE, --url URL, or set {URL_VARIABLE}; there is no {DEFAULT_CONFIG} in this folder")
    cluster = cluster_file(config)
    urls = master_urls(cluster)
    if urls:
        return urls
    if cluster.is_embedded:
        raise ConfigurationError(f'{cluster.path}: no master has an http address, so nobody outside of its process can reach it: write http = "127.0.0.1:7201"')
    return {cluster.name: cluster.broker}


def until_reached(timeout_s: float, pause_s: float) -> Retrying:
    """Calls a function again while it raises Unreachable, which is raised in the end: a node that restarts is back in a moment."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    again = retry_if_exception_type(Unreachable)
    return Retrying(retry=again, stop=stop_after_delay(timeout_s), wait=wait_fixed(pause_s), reraise=True)
