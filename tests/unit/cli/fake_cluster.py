"""A client that answers from lists, in place of a cluster: what commands ask for, they get or they fail with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Self

from brokerha.model import states
from brokerha.model.errors import BrokerhaError


def node(
    name: str, role: str = "worker", state: str = "", lsn: int | None = 7, fingerprint: str = "f1", **more: Any
) -> dict[str, Any]:
    """A status row with every field of the contract; of a node that is well unless a state is given."""
    reason = more.pop("reason", "")
    state = state or (states.OK if role == "master" else states.ON)
    return {
        "id": name,
        "role": role,
        **states.describe(state, reason),
        "master": more.pop("master", "m1"),
        "received_lsn": lsn,
        "applied_lsn": lsn,
        "lag_entries": 0,
        "lag_s": 0.0,
        "stale_s": 0.0 if role == "master" else None,
        "fingerprint": fingerprint,
        "items": 12,
        "incoming": 0,
        "in_doubt": 0,
        "seen_s": 0.5,
        "probe": False if role == "worker" else None,
        "readable": True if role == "worker" else None,
        "free_bytes": None,
        **more,
    }


def answer(*nodes: dict[str, Any], state: str = "ok") -> dict[str, Any]:
    """A whole status."""
    return {"cluster": "orders", "epoch": 1, "state": state, "nodes": list(nodes)}


HEALTHY = answer(node("m1", "master"), node("w1"), node("w2"))


def line(lsn: int, txid: str = "", **more: Any) -> dict[str, Any]:
    """A line of the log."""
    return {
        "lsn": lsn,
        "txid": txid or f"t{lsn}",
        "origin": "m1",
        "timestamp": 1000 + lsn,
        "epoch": 1,
        "kind": "put",
        "outcome": "applied",
        "reason": "",
        "operations": 1,
        "effect_digest": "d",
        **more,
    }


class FakeClient:
    """Answers in turn, the last one for ever; an error is raised instead of given."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        answers.setdefault("entries", {"cluster": "orders", "lineage": 0, "rewinds": [], "entries": []})
        self._answers: dict[str, Iterator[Any]] = {name: _for_ever(given) for name, given in answers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("close",))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            options.pop("timeout", None)
            self.calls.append((name, *arguments, options) if options else (name, *arguments))
            if name not in self._answers:
                message = f"nobody told the fake client about {name}"
                raise AssertionError(message)
            given = next(self._answers[name])
            if isinstance(given, BaseException):
                raise given
            return given(*arguments) if callable(given) else given

        return call


def _for_ever(given: Any) -> Iterator[Any]:
    answers = given if isinstance(given, list) else [given]
    return itertools.chain(answers, itertools.repeat(answers[-1]))


def unreachable(error: BrokerhaError) -> Callable[[str, float], FakeClient]:
    """A `connect` that finds nobody."""

    def connect(_address: str, timeout: float) -> FakeClient:
        raise error

    return connect
