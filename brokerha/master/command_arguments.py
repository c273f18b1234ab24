"""The arguments of each operator's command. They are checked before anything is done, wherever a command comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from brokerha.master.pins import LONGEST_S, PIN
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import is_node_id
from brokerha.model.outside.shapes import FLAG, LSN_LIMIT, Shape, Shapes, check_shapes, is_text, listed, needed, number, shown, text

NAME_LIMIT: Final = 200
"""Characters of the name of a node, a task or a backup; the parts that know the name check it further."""
SOURCES_LIMIT: Final = 1000
"""Workers that one repair can name."""
_NAMED: Final = needed(Shape("a name", lambda value: is_text(value) and 1 <= len(value) <= NAME_LIMIT))
_NODE: Final = needed(Shape("a node id: 1 to 32 of a-z, 0-9 and -", lambda value: isinstance(value, str) and is_node_id(value)))
NAMED_BY_DOORS: Final = frozenset({"setting-set", "setting-unset"})
"""Commands with the name of their user: a door that knows it adds it, and does not trust the client's own word."""
AT_NODES: Final = NAMED_BY_DOORS | {"settings"}
"""Commands that the node carries out, not its core: the core knows no cluster file."""
_PIN: Final = needed(
    Shape("1 to 64 letters, digits, '.', '_' and '-'", lambda value: isinstance(value, str) and bool(PIN.match(value)))
)
_WORKER: Final[Shapes] = {"worker": _NAMED, "force": FLAG}
_OF_NODE: Final[Shapes] = {"node": _NAMED, "force": FLAG}
_ASKED: Final[Shapes] = {"by": text(NAME_LIMIT), "from": text(NAME_LIMIT)}
"""The user and the address, as the door says."""
_NUMBER: Final = number(0, LSN_LIMIT)
COMMANDS: Final[dict[str, Shapes]] = {
    "worker-add": {"worker": _NAMED, "readable": FLAG},
    "worker-remove": _WORKER,
    "worker-on": _WORKER,
    "worker-off": _WORKER,
    "worker-trust": _WORKER,
    "worker-copy": _WORKER,
    "worker-repair": {"from": needed(listed(_NAMED, 1, SOURCES_LIMIT))},
    "workers": {},
    "backup": {"name": _NAMED, "incremental": FLAG, "replace": FLAG, "worker": text(NAME_LIMIT)},
    "scrub": _WORKER,
    "task": {"request": _NAMED},
    "tasks": {},
    "pin": {"name": _PIN, "lsn": needed(number(1, LSN_LIMIT)), "for_s": needed(number(1, LONGEST_S))},
    "unpin": {"name": _PIN},
    "pins": {},
    "peer-add": {"node": _NODE},
    "peer-remove": {"node": _NODE, "force": FLAG},
    "peers": {},
    "promote": _OF_NODE,
    "node-pause": _OF_NODE,
    "node-coin": _OF_NODE,
    "node-continue": _OF_NODE,
    "split-recovery": {"mode": text(NAME_LIMIT)},
    "splits": {},
    "split": {"number": needed(_NUMBER), "from": _NUMBER, "limit": number(1, LSN_LIMIT)},
    "settings": {},
    "setting-set": {"name": _NAMED, "value": needed(text(NAME_LIMIT)), **_ASKED},
    "setting-unset": {"name": _NAMED, **_ASKED},
    "rates": {"after": needed(_NUMBER)},
}


def check_command(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for an unknown command, and for an argument that is unknown, missing, or of another shape."""
    shapes = COMMANDS.get(name)
    if shapes is None:
        raise InvalidRequest(f"unknown command {shown(name)}; known are {', '.join(sorted(COMMANDS))}")
    check_shapes(f"the command {name}", shapes, arguments)
