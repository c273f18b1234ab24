"""Settings at run time laid over the cluster file: what the cluster says goes before what the file says (model/reserved/settings.py).

    at_start(file, rows)             what a node is built from: all of them count
    running(file, rows, started)     what is in force in one that runs: the live ones count, the others stay as it started with them

The file gives the initial values, and what a setting goes back to when it is taken back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from brokerha.model.errors import ConfigurationError
from brokerha.model.reserved.settings import SETTINGS, Row, text_of, value_of
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.rules import contradictions

Rows = Mapping[str, Row]


def at_start(file: ClusterConfig, rows: Rows) -> ClusterConfig:
    """The file with all rows over it. Raises ConfigurationError when the values contradict each other."""
    return _checked(dataclasses.replace(file, **_values(rows)))


def running(file: ClusterConfig, rows: Rows, started: ClusterConfig) -> ClusterConfig:
    """What is in force in a node that ``started`` with these values. Raises ConfigurationError when the values contradict each other."""
    values = {_field(name): getattr(started, _field(name)) for name, limits in SETTINGS.items() if not limits.is_live}
    live = {name: row for name, row in rows.items() if SETTINGS[name].is_live}
    return _checked(dataclasses.replace(file, **values, **_values(live)))


def text_in(config: ClusterConfig, name: str) -> str:
    """The value of a setting in a configuration, as text."""
    return text_of(getattr(config, _field(name)))


def _values(rows: Rows) -> dict[str, Any]:
    return {_field(name): value_of(name, row.value) for name, row in rows.items() if row.value is not None}


def _checked(config: ClusterConfig) -> ClusterConfig:
    for _, problem, remedy in contradictions({name: getattr(config, _field(name)) for name in SETTINGS}):
        raise ConfigurationError(f"{problem}: set {remedy}")
    if config.publish_changes and not config.log_stream:
        raise ConfigurationError("publish-changes needs log-stream: set log-stream to true, or publish-changes to false")
    return config


def _field(name: str) -> str:
    return name.replace("-", "_")
