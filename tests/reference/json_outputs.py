"""The reference page of the JSON of all commands, and its schemas, made from the table below: the JSON of each with ``-o json``, a contract:

    "text"  "integer"  "number"  "boolean"  "any"      one value; a final ? also allows null
    ["text"]                                           a list
    {"lsn": "integer"}                                 an object with all of these fields
    {"*": "text"}                                      an object whose names are data
    {"~more": "text"}                                  a field that is optional

Fields can be added, and are never removed, renamed or given another type within a major version: a test has their list. Names show
units: `_s` seconds, `_us` and `timestamp` microseconds since 1970, `_bytes` bytes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final = frozenset({"integer", "number", "boolean"})


class Output(NamedTuple):
    """One form of JSON."""

    commands: tuple[str, ...]
    """Commands that write it."""
    about: str
    fields: Any
    is_lines: bool = False
    """One object in each line, instead of one document."""


_NODE = {
    "id": "text", "role": "text", "state": "text", "reason": "text?", "action": "text?", "master": "text?",
    "received_lsn": "integer?", "applied_lsn": "integer?", "lag_entries": "integer?", "lag_s": "number?", "stale_s": "number?",
    "fingerprint": "text?", "items": "integer?", "incoming": "integer?", "in_doubt": "integer?", "seen_s": "number?",
    "probe": "boolean?", "readable": "boolean?", "free_bytes": "integer?", "primary": "text?", "view": "integer?",
    "epoch": "integer?", "proposer": "text?", "members": ["text", None], "excluded": ["text", None], "masters": ["text", None],
    "split_recovery": "text?", "split_recovery_from": "text?", "splits": "integer?", "given_up": "integer?", "last_split": "text?",
    "restart_for": ["text", None],
}  # fmt: skip
_BACKUP = {
    "name": "text", "cluster": "text?", "node": "text?", "made": "text?", "made_us": "integer?", "least_lsn": "integer?", "lsn": "integer?",
    "last_lsn": "integer?", "last_txid": "text?", "last_timestamp": "integer?", "last_time": "text?", "fingerprint": "text?",
    "items": "integer?", "size_bytes": "integer?", "segments": "integer?", "problem": "text?",
    "worker": "text?", "base_lsn": "integer?", "base_items": "integer?",
}  # fmt: skip
_BACKUP_NAMES = (
    "`worker` made it; `base_lsn` and `base_items` are of its copy, `last_lsn` and `fingerprint` of its end. Older names: `node` is `worker`, "
    "`items` is `base_items`; `lsn` is `last_lsn` in `backup make` and `base_lsn` elsewhere."
)
_TRANSACTION = {
    "txid": "text", "xid": "text", "state": "text", "outcome": "text?", "operations": "integer", "bytes": "integer",
    "participants": ["any"], "prepared_us": "integer?", "idle_s": "number?", "reason": "text", "node": "text",
}  # fmt: skip
_PIN = {
    "master": "text", "name": "text", "lsn": "integer", "until": "integer", "left_s": "number", "entries": "integer", "dropped": "boolean",
}  # fmt: skip
_SPLIT = {
    "number": "integer", "last_write": "integer?", "epoch": "integer", "lineage": "integer", "lsn": "integer", "keeps_content": "boolean",
    "total": "integer", "held": "integer", "effects": {"*": "integer"}, "counted": "integer",
}  # fmt: skip
_MESSAGE = {
    "id": "text", "seen": "text?", "age_s": "number?", "node": "text", "exchange": "text", "key": "text", "type": "text",
    "size_bytes": "integer", "message_id": "text", "reason": "text", "can_be_retried": "boolean",
}  # fmt: skip
_PEER = {
    "node": "text", "standing": "text", "heard": "boolean", "heard_s": "number?", "epoch": "integer?", "journal": "text",
    "other_journal": "text", "lsn": "integer?", "lag": "integer?",
}  # fmt: skip
_SETTING = {
    "name": "text", "value": "text", "source": "text", "file": "text", "in_force": "text", "live": "boolean", "takes": "text",
    "by": "text?", "at": "integer?", "from": "text?",
}  # fmt: skip
_CHANGE = {"kind": "text", "node": "text", "state": "text", "stage": "text", "forced": "boolean"}

OUTPUTS: Final[dict[str, Output]] = {
    "status": Output(
        ("status",),
        "The whole cluster, and one row for each node. The words of `state` are in docs/operating.md.",
        {
            "cluster": "text", "epoch": "integer", "members": ["text"], "excluded": ["text"], "masters": ["text"], "state": "text",
            "nodes": [_NODE],
        },
    ),
    "doctor": Output(
        ("doctor",),
        "What the doctor found; `level` and `worst` are ok, warning or problem; `command` is what mends it.",
        {
            "cluster": "text", "worst": "text",
            "findings": [{"level": "text", "subject": "text", "what": "text", "command": "text"}],
        },
    ),
    "written": Output(
        ("put", "delete", "update", "publish", "control add", "control remove", "snapshot create", "snapshot drop", "repository add", "repository remove"),
        "What became of a write; `level` is accepted, synchronised or applied.",
        {"txid": "text", "lsn": "integer?", "level": "text"},
    ),
    "load": Output(
        ("load",),
        "What was loaded, and the LSN of the last of it.",
        {"transactions": "integer", "statements": "integer", "lsn": "integer?"},
    ),
    "consume": Output(
        ("consume",),
        "One message; `encoding` is utf-8 or base64.",
        {"id": "text", "content_type": "text", "encoding": "text", "body": "text"},
        is_lines=True,
    ),
    "wait": Output(
        ("wait",),
        "Which copies have applied an LSN, of how many.",
        {"lsn": "integer", "txid": "text?", "copies": ["text"], "of": "integer"},
    ),
    "verify": Output(
        ("verify",),
        "Whether all copies are equal at one LSN; `differ` names those that are not.",
        {
            "lsn": "integer", "equal": "boolean", "fingerprint": "text?", "differ": ["text"],
            "copies": [{"id": "text", "master": "text", "fingerprint": "text?"}], "skipped": ["any"], "~deep": ["any"],
        },
    ),
    "log-show": Output(
        ("log show", "log tail"),
        "One line of the log.",
        {
            "lsn": "integer", "txid": "text", "origin": "text", "timestamp": "integer", "epoch": "integer", "lineage": "integer", "user": "text?",
            "kind": "text", "outcome": "text?", "reason": "text", "operations": "integer", "effect_digest": "text?",
        },
        is_lines=True,
    ),
    "log-pins": Output(
        ("log pins",),
        "What holds the logs of the masters, and how much they hold.",
        {
            "masters": [
                {"master": "text", "first_lsn": "integer", "last_lsn": "integer", "hard_limit": "integer", "split": "any"}
            ],
            "pins": [_PIN], "silent": ["text"],
        },
    ),
    "log-pin": Output(
        ("log pin", "log unpin"),
        "What each master did; fields of a pin are there after `log pin`, `changed` after `log unpin`.",
        {
            "pins": [
                {
                    "master": "text", "name": "text", "~lsn": "integer", "~until": "integer", "~left_s": "number",
                    "~entries": "integer", "~dropped": "boolean", "~changed": "boolean",
                }
            ],
            "refused": {"*": "text"}, "silent": ["text"],
        },
    ),
    "get": Output(
        ("get",),
        "Keys with their values, in byte order of the keys, all at one LSN; bytes that are no UTF-8 are `key_base64` and `value_base64`. With `--prefix` and `--range` only.",
        {"lsn": "integer", "rows": [{"~key": "text", "~key_base64": "text", "~value": "text", "~value_base64": "text"}]},
    ),
    "table-list": Output(
        ("table list",),
        "All key-value tables.",
        {"tables": ["text"]},
    ),
    "snapshot-list": Output(
        ("snapshot list",),
        "All snapshots of key-value tables; `lsn` is the moment that one shows.",
        {"snapshots": [{"name": "text", "tables": ["text"], "lsn": "integer"}]},
    ),
    "tx-staged": Output(
        ("tx staged",),
        "Large transactions of which anything is staged; `last_us` is when the last part came, by the clock of the order.",
        {"staged": [{"txid": "text", "parts": "integer", "bytes": "integer", "items": "integer", "user": "text", "last_us": "integer"}]},
    ),
    "repository-list": Output(
        ("repository list",),
        "All RDF repositories.",
        {"repositories": [{"id": "text", "statements": "integer"}]},
    ),
    "control-list": Output(
        ("control list",),
        "The control suite.",
        {"checks": [{"name": "text", "kind": "text", "target": "text", "text": "text", "expected": "text"}]},
    ),
    "worker-list": Output(
        ("worker list",),
        "The workers of all masters that answer; `read_only` is why a site takes no writes, or empty.",
        {
            "masters": [{"master": "text", "read_only": "text"}],
            "workers": [
                {
                    "master": "text", "id": "text", "state": "text", "reason": "text", "readable": "boolean",
                    "switched_on": "boolean", "applied_lsn": "integer", "fingerprint": "text?", "probe": "boolean", "alive": "boolean",
                }
            ],
            "silent": ["text"],
        },
    ),
    "log-verify": Output(
        ("log verify",),
        "`problems` of one journal; `difference` is null, or the first LSN at which logs of masters differ, with the line of each.",
        {"nodes": ["text"], "lsn": "integer", "problems": ["text"], "difference": "any", "silent": ["text"]},
    ),
    "quarantine-change": Output(
        ("quarantine retry", "quarantine drop"),
        "How many messages left quarantine, and how many could not.",
        {"done": "integer", "failed": "integer"},
    ),
    "user-add": Output(
        ("user add",),
        "The user as it is now, which rights ended, and the token that was made.",
        {
            "name": "text", "role": "text", "repositories": {"*": "text"}, "tables": {"*": "text"}, "queues": {"*": "text"},
            "graphs": {"*": {"*": "text"}}, "password": "boolean", "tokens": "integer", "expires": "text?", "file": "text",
            "token": "text?", "ended": ["text"],
        },
    ),
    "support-bundle": Output(
        ("support-bundle",),
        "The file that was made, and the nodes that did not answer.",
        {"file": "text", "bytes": "integer", "files": "integer", "silent": ["text"]},
    ),
    "user-remove": Output(("user remove",), "Who was removed, and from which file.", {"name": "text", "file": "text"}),
    "worker-change": Output(
        ("worker on", "worker off"),
        "Whether anything was changed; `read_only` is why the master takes no writes with this worker off.",
        {"worker": "text", "changed": "boolean", "~read_only": "text"},
    ),
    "node-order": Output(
        ("node pause", "node coin", "node continue"),
        "Whether anything was changed, and the state and reason of the node from now on.",
        {"node": "text", "changed": "boolean", "state": "text", "reason": "text"},
    ),
    "peer-list": Output(
        ("peer list",),
        "The masters as one of them sees them; `change` is a change that is under way, or null.",
        {
            "master": "text", "epoch": "integer", "proposer": "text", "masters": ["text"], "members": ["text"], "before": ["text"],
            "retired": ["any"], "refused": "text", "change": "any", "peers": [_PEER],
        },
    ),
    "peer-change": Output(
        ("peer add", "peer remove", "peer replace"),
        "A change of the masters, and how far it is.",
        {"master": "text", **_CHANGE, "changed": "boolean", "masters": ["text"]},
    ),
    "settings-list": Output(
        ("settings list",),
        "Settings at run time, as one master knows them; `source` is file or cluster, `at` microseconds since 1970, `file` what the file of that master says.",
        {"master": "text", "lsn": "integer", "problem": "text", "settings": [_SETTING]},
    ),
    "settings-get": Output(
        ("settings get",),
        "One setting.",
        {"master": "text", "lsn": "integer", "problem": "text", "setting": _SETTING},
    ),
    "settings-set": Output(
        ("settings set", "settings unset"),
        "One setting after it was changed, and the place of the change in the order.",
        {"master": "text", "lsn": "integer", "problem": "text", "set_lsn": "integer", "setting": _SETTING},
    ),
    "splits-list": Output(
        ("splits list",),
        "The split book of one master: what was given up each time when sides came together.",
        {"master": "text", "splits": [_SPLIT]},
    ),
    "splits-show": Output(
        ("splits show",),
        "One split, and what became of each transaction that was given up.",
        {
            "master": "text", **_SPLIT,
            "entries": [
                {
                    "lsn": "integer", "txid": "text", "origin": "text", "outcome": "text?", "new_lsn": "integer?",
                    "new_outcome": "text?", "reason": "text?", "effect": "text?",
                }
            ],
            "next": "integer?",
        },
    ),
    "split-recovery": Output(
        ("split-recovery",),
        "The strategy for splits, where it comes from, and what the files of the masters say.",
        {
            "master": "text", "mode": "text", "source": "text", "epoch": "integer", "files": {"*": "text"}, "differing": {"*": "text"},
            "change": "any", "changed": "boolean",
        },
    ),
    "quarantine-list": Output(
        ("quarantine list",), "Messages that nodes could not use.", {"messages": [_MESSAGE]}
    ),
    "quarantine-show": Output(
        ("quarantine show",), "One of them, with its properties and its body.", {**_MESSAGE, "properties": {"*": "any"}, "body": "text"}
    ),
    "user-list": Output(
        ("user list",),
        "Users of the HTTP doors.",
        {
            "users": [
                {
                    "name": "text", "role": "text", "repositories": {"*": "text"}, "tables": {"*": "text"}, "queues": {"*": "text"},
                    "graphs": {"*": {"*": "text"}}, "password": "boolean", "tokens": "integer", "expires": "text?",
                }
            ]
        },
    ),
    "tx-list": Output(
        ("tx list",), "Transactions that are open, prepared, or decided by hand.", {"transactions": [_TRANSACTION]}
    ),
    "tx-show": Output(
        ("tx show",),
        "What became of a transaction; the other fields of `tx list` are there as long as it is in that list.",
        {
            "txid": "text", "state": "text", "lsn": "integer?", "outcome": "text?", "reason": "text",
            **{f"~{name}": kind for name, kind in _TRANSACTION.items() if name not in {"txid", "state", "outcome", "reason"}},
        },
    ),
    "tx-change": Output(
        ("tx commit", "tx rollback", "tx forget"),
        "What became of it.",
        {"txid": "text", "xid": "text?", "state": "text", "lsn": "integer?"},
    ),
    "backup-make": Output(
        ("backup make",),
        "What was backed up, and where. " + _BACKUP_NAMES,
        {
            "worker": "text", "name": "text", "path": "text", "lsn": "integer", "fingerprint": "text?", "items": "integer?",
            "size_bytes": "integer", "base_lsn": "integer", "base_items": "integer", "last_lsn": "integer",
        },
    ),
    "backup-list": Output(
        ("backup list",),
        "Backups of this machine; of one with a problem all other fields are null. " + _BACKUP_NAMES,
        {"folder": "text", "backups": [_BACKUP]},
    ),
    "backup-verify": Output(
        ("backup verify",), "A backup, and what is wrong with it. " + _BACKUP_NAMES, {**_BACKUP, "problems": ["text"]}
    ),
    "replay": Output(
        ("replay",),
        "What was applied to a directory, or would be.",
        {
            "directory": "text", "before_lsn": "integer", "lines": "integer", "lsn": "integer", "fingerprint": "text?",
            "items": "integer?",
        },
    ),
    "restore": Output(
        ("restore",),
        "What was made from a backup, or would be (`state` is planned or restored).",
        {
            "backup": "text", "from_cluster": "text", "cluster": "text", "lsn": "integer", "txid": "text?", "timestamp": "integer?",
            "fingerprint": "text?", "copy_lsn": "integer?", "copy_bytes": "integer", "lines": "integer",
            "places": [{"node": "text", "role": "text", "directory": "text", "in_the_way": "text"}], "state": "text",
        },
    ),
    "restore-online": Output(
        ("restore --online",),
        "How a running cluster was taken back, or would be (`state` is planned, restored or unchanged); `lsn` is where that took place, or what was looked at last.",
        {
            "backup": "text", "to_lsn": "integer", "state": "text", "lsn": "integer", "txid": "text", "operations": "integer",
            "bytes": "integer?", "is_equal": "boolean", "kept_tables": ["text"],
        },
    ),
    "init": Output(
        ("init supervisord", "init systemd", "init compose", "init definitions", "init certificates"),
        "Files, how each was found (new, up-to-date, differs), and what to do next.",
        {
            "files": [{"path": "text", "found": "text", "written": "boolean"}], "up_to_date": "boolean", "next": ["text"],
        },
    ),
}  # fmt: skip
"""File name of a schema -> its content."""


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON schema of one output. Unknown fields are allowed, because later versions have more."""
    output = OUTPUTS[name]
    commands = ", ".join(f"brokerha {each}" for each in output.commands)
    about = f"{commands}: {output.about}" + (" One object in each line." if output.is_lines else "")
    return {"$schema": DIALECT, "title": name, "description": about, **_schema(output.fields)}


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, list):
        nullable = len(kind) > 1
        return {"type": ["array", "null"] if nullable else "array", "items": _schema(kind[0])}
    if isinstance(kind, dict):
        if "*" in kind:
            return {"type": "object", "additionalProperties": _schema(kind["*"])}
        properties = {name.removeprefix("~"): _schema(each) for name, each in kind.items()}
        return {"type": "object", "properties": properties, "required": [name for name in kind if not name.startswith("~")]}
    if kind == "any":
        return {}
    word = kind.removesuffix("?")
    word = word if word in _TYPES else "string"
    return {"type": [word, "null"] if kind.endswith("?") else word}


def lines_of(name: str) -> list[str]:
    """Return each field with its place and type, one in each line, for the list that must not shrink.

    >>> lines_of("load")
    ['load lsn integer?', 'load statements integer', 'load transactions integer']
    """
    return sorted(f"{name} {place} {kind}" for place, kind in _places(OUTPUTS[name].fields, ""))


def _places(kind: Any, at: str) -> list[tuple[str, str]]:
    if isinstance(kind, list):
        own = [(at, "list?" if len(kind) > 1 else "list")]
        return own + (_places(kind[0], f"{at}[]") if isinstance(kind[0], dict | list) else [])
    if isinstance(kind, dict):
        own = [(at, "object")] if at else []
        if "*" in kind:
            return own
        below = (
            _places(each, f"{at}.{name.removeprefix('~')}".lstrip(".") + ("~" if name.startswith("~") else ""))
            for name, each in kind.items()
        )
        return own + [place for places in below for place in places]
    return [(at, kind)]


# ---- the page

_JSON_START: Final = """\
# JSON of the commands

<!-- Made by `python -m tests.reference`; change the code, not this page. -->

What commands write with `-o json`. Fields may be added; none is taken away, renamed or given another type
within a major version: be ready for fields that you do not know. Each form has a JSON schema in [schemas](schemas/).

Units are in the names: `_s` seconds, `_us` and `timestamp` microseconds since 1970, `_bytes` bytes, `lsn` a place in the log. A type with `?`
may be null too; a field with `~` is there in some cases only. `x[].y` is the field `y` of each element of the list `x`.

"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_JSON_START.rstrip(), ""]
    for name, output in OUTPUTS.items():
        commands = ", ".join(f"`brokerha {each}`" for each in output.commands)
        lines = " One object in each line." if output.is_lines else ""
        parts += [f"## {name}", "", f"{commands}: {output.about}{lines} Schema: [{name}.json](schemas/{name}.json).", ""]
        parts += ["| field | type |", "|---|---|"]
        parts += [f"| `{place}` | {kind} |" for _, place, kind in (line.split(" ") for line in lines_of(name))]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"
