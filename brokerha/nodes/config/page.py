"""The reference page of the cluster file, made from the table of keys that loads it.

    python -m brokerha.nodes.config.page > docs/reference/configuration.md

A test fails when the page is not up to date.
"""

from __future__ import annotations

import sys

from brokerha.nodes.config.cluster import sections
from brokerha.nodes.config.keys import WORDS, KeyRow, in_file

_START = """\
# Configuration: the cluster file

<!-- Made by `python -m brokerha.nodes.config.page`; change the code, not this page. -->

One TOML file describes the whole cluster. Every node and every command reads the same file; `brokerha node ID -c cluster.toml`
says which node a process is.

```toml
[cluster]
name = "orders"
broker = "amqp://guest:guest@127.0.0.1:5672/orders"

[[master]]
id = "m1"
http = "127.0.0.1:7201"

[[worker]]
id = "w1"
master = "m1"
http = "127.0.0.1:7301"
```

What is unknown, contradicts itself or cannot be kept is refused at start, in one line with the place and with what to write
instead, and exit code 78:

```
cluster.toml:4: unknown key 'round-timeout' in [cluster]: write round-timeout-ms
```

A changed file counts from the next start of a node. All nodes of a cluster should run with the same file. Most settings of `[cluster]` are changed for all
nodes while the cluster runs ([settings at run time](../operating.md#settings-at-run-time)), which goes before the file.
"""

_TITLES = {
    "cluster": "`[cluster]`: once",
    "master": "`[[master]]`: one for each master, at least one",
    "backup": "`[[backup]]`: standby processes of masters",
    "worker": "`[[worker]]`: one for each full copy of the data",
}

_NOTES = {
    "cluster": "`round-timeout-ms`, `idle-round-ms` and `retransmit-ms` must be below `max-peer-lag-s`, which must hold two "
    "`idle-round-ms` and a `round-timeout-ms`; `dead-after-ms` must hold at least two `heartbeat-ms`. Words may be written in any case.\n",
    "backup": "What backups are for, and what `sync-n` promises: [fail-over.md](../fail-over.md). New ones go after the others. Without sections of "
    "this kind a master is one process, and nobody takes over.\n",
    "worker": "Workers in sync take turns in executing transactions (`probe-turn`), unless `probe` of the master names one; the others of the "
    "same master apply their effects.\n",
}

_END = """\
## Environment

Each key except `id` can be set from outside, which goes before the file:

| variable | sets |
|---|---|
| `BROKERHA_CLUSTER_ROUND_TIMEOUT_MS` | `round-timeout-ms` of `[cluster]` |
| `BROKERHA_MASTER_M1_HTTP` | `http` of the master `m1` (letters in capitals, `-` becomes `_`) |
| `BROKERHA_CLUSTER_BROKER_FILE` | `broker`, read from the file that the variable names: for passwords |

`_FILE` works with every key. A variable of this form that names no key is refused, as a misspelt key is. `BROKERHA_URL` is not
about the cluster file: it tells the commands which node to talk to.
"""


def page() -> str:
    """The whole page as Markdown."""
    parts = [_START]
    for section, keys in sections().items():
        parts.append(f"## {_TITLES[section]}\n")
        parts.append(_table(list(keys.values())))
        if section in _NOTES:
            parts.append(_NOTES[section])
    return "\n".join([*parts, _END])


def _table(rows: list[KeyRow]) -> str:
    lines = ["| key | type | default | unit | bounds | meaning |", "|---|---|---|---|---|---|"]
    for row in rows:
        default = "required" if row.is_required else row.key.default_text or f"`{in_file(row.default).strip(chr(34))}`"
        cells = (f"`{row.name}`", WORDS[row.type], default, row.key.unit, row.bounds, row.key.meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
