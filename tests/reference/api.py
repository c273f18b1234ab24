"""The page of the Python API: docs/reference/api.md, from the signatures and docstrings of what `brokerha` exports."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import brokerha
from brokerha import aio, errors
from brokerha.client import calls, exporting, loading, outcomes, pipeline, reads, transactions
from brokerha.embedded import EmbeddedCluster
from brokerha.model import ids

HEAD = """\
# The Python API

<!-- Made by `python -m tests.reference` from signatures and docstrings; change these, not this page. -->

What `import brokerha` promises. All of it is typed (`py.typed`), and checked by `mypy --strict`.

```python
import brokerha

with brokerha.connect("http://127.0.0.1:7201") as db:
    db.put("prices", "sku-1", b"9.90")
    assert db.get("prices", "sku-1") == b"9.90"
```

**Stability.** Names, arguments, results and errors on this page stay as they are within a minor version, and from 1.0 on within a major version: later ones may add arguments with a default,
fields at the end of a result, and more special errors below those that are named. What goes away is named in the [changelog](../../CHANGELOG.md) of the version that takes it away, with what
to write instead. The same holds for [commands](commands.md), their [JSON](json.md), the [cluster file](configuration.md), [HTTP](../http.md) and [AMQP](../amqp.md). Whatever else can be imported is a
part of the inside and may change at any time: a name is public because it stands here, not because it has no underscore.

Calls may be made from any thread, but not from a process that was forked off: connect after the fork (there calls raise `WrongState`). `timeout` is in seconds, up to 30 days, over HTTP up to an hour, `ack` is `accepted`, `synchronised`, `applied` or `applied=N`, `key` makes a write safe to repeat, `min_lsn` is the least LSN that a read
must see. Each write can raise `Rejected`, `OutcomeUnknown`, `InvalidRequest`, `ReadOnly`, `NotReady` and `Unreachable`, each read the last four and `TimedOut`; other errors stand with their call.
"""
INSIDE = {
    "ask",
    "branch",
    "bucket_items",
    "digests",
    "handed_in",
    "least_lsn",
    "logged",
    "note",
    "read",
    "seconds",
    "take",
    "txid",
    "wire",
    "abandon",
    "fronts",
}
"""Names without an underscore that parts of brokerha use among each other."""


class Part(NamedTuple):
    """One heading, with functions and classes."""

    title: str
    words: str
    functions: tuple[Any, ...] = ()
    types: tuple[type, ...] = ()


PARTS = (
    Part(
        "`brokerha`",
        "`brokerha.errors` is the module of all [errors](#errors), `brokerha.__version__` the version as a text.",
        (brokerha.connect,),
    ),
    Part(
        "`brokerha.Client` and `brokerha.Session`",
        "`connect` gives a `Session`, which is a `Client` that reads its own writes. Both are context managers and have the same calls.",
        types=(brokerha.Client,),
    ),
    Part(
        "Transactions",
        "What `transaction` gives, and `work` of `run_transaction` gets; a context manager. Reads inside of it see its own writes. Its"
        " attributes: `txid` (after the begin), `committed` (a `Committed` after the commit, else None), `state` (`new`, `open`,"
        " `prepared` or `over`), `isolation` and `xid`.",
        types=(transactions.Transaction,),
    ),
    Part(
        "Pipelines", "What `pipeline` gives; a context manager. Each write gives a future of `Written`.", types=(pipeline.Pipeline,)
    ),
    Part(
        "Results",
        "Named tuples, lists and texts. The modules that they lie in are no promise. Names for annotations: "
        + ", ".join(f"`brokerha.{name}`" for name in brokerha.__all__ if name[0].isupper())
        + ".",
        types=(
            outcomes.Written,
            transactions.Committed,
            reads.Solutions,
            reads.Triples,
            reads.Rows,
            reads.Iri,
            reads.BlankNode,
            reads.Literal,
            reads.QueueMessage,
            calls.Consumed,
            exporting.Export,
            loading.Loaded,
            ids.Xid,
        ),
    ),
    Part(
        "`brokerha.aio`",
        "The same for asyncio: `async with`, and each call is awaited.",
        (aio.connect,),
        (aio.AsyncSession, aio.AsyncTransaction, aio.AsyncConsumed),
    ),
    Part(
        "`brokerha.embedded`",
        '`EmbeddedCluster("cluster.toml")`: a whole cluster in one process, for tests and programs that bring their own; a context manager.'
        " It does not serve the `http` addresses of the file (`brokerha up` does), and `client` gives a `Client`, which does not read its"
        " own writes: `client().session()` does.",
        types=(EmbeddedCluster,),
    ),
)
ALIASES = {
    "NodeId, TxId": "`str`", "Lsn": "`int`: a place in the order of all transactions, from 1 on",
    "Least": "`Lsn | Literal['latest'] | None`: see at least this; None: nothing, or in a session its own writes",
    "Operation": "a tuple, as [operations](../amqp.md) are written in messages", "Source": "a path, an open file, or lines",
    "ReadOutcome": "an answer as it came: `content_type`, `lsn`, `body`", "Progress": "is called with a `Loaded` now and then", "Row": "`tuple[bytes, bytes]`: key, value",
    "Result": "what `work` returns",
    "Solution": "`dict`: name of a variable -> `Iri`, `BlankNode`, `Literal`, or a tuple of three for a triple term",
}  # fmt: skip


def page() -> str:
    """The whole page as Markdown."""
    lines = [HEAD]
    for part in PARTS:
        lines += [f"## {part.title}", "", part.words, "", *map(_function, part.functions)]
        for each in part.types:
            lines += ["", *_type(each, has_heading=len(part.types) > 1)]
        lines.append("")
    lines += [
        "## Names in signatures",
        "",
        "| name | is |",
        "|---|---|",
        *(f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in ALIASES.items()),
        "",
    ]
    lines += [
        "## Errors",
        "",
        "All are in `brokerha.errors`, indented below what they are a kind of.",
        "",
        *_errors(errors.BrokerhaError, 0),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def public(owner: type) -> Iterator[tuple[str, Any]]:
    """Its calls by name, those that it inherits included."""
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        is_ours = isinstance(member, property) or str(getattr(inspect.unwrap(member), "__module__", "")).startswith("brokerha")
        if not name.startswith("_") and name not in INSIDE and is_ours:
            yield name, member


def _type(owner: type, *, has_heading: bool) -> Iterator[str]:
    fields = (
        ""
        if not issubclass(owner, tuple)
        else f"({', '.join(f'{name}: {_plain(kind)}' for name, kind in owner.__annotations__.items())})"
    )
    if has_heading:
        yield f"**`{owner.__name__}{fields}`**: {told(owner)}"
        yield ""
    is_awaited = owner.__module__ == aio.__name__
    as_elsewhere = []
    for name, member in public(owner):
        function: Any = inspect.unwrap(getattr(member, "fget", member))
        if is_awaited and function.__module__ != aio.__name__:
            as_elsewhere.append(f"`{name}`")
        else:
            yield f"- `{name}{'' if isinstance(member, property) else _signature(function)}`: {told(function)}"
    if as_elsewhere:
        yield f"- with the arguments that they have above: {', '.join(as_elsewhere)}"


def _function(function: Any) -> str:
    return f"`{function.__module__}.{function.__name__}{_signature(function)}`: {told(function)}"


def _signature(function: Any) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    arguments = node.args
    if arguments.args and arguments.args[0].arg == "self":
        del arguments.args[0]
    for defaults in (arguments.defaults, arguments.kw_defaults):
        for place, each in enumerate(defaults):
            if isinstance(each, ast.Name):
                # The name of a constant says nothing to who reads the page.
                defaults[place] = ast.Constant(function.__globals__[each.id])
    result = f" -> {ast.unparse(node.returns)}" if node.returns and ast.unparse(node.returns) != "None" else ""
    return f"({ast.unparse(arguments)}){result}"


def _plain(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def told(thing: Any) -> str:
    """The first sentence of a docstring, and those that say what it raises."""
    first, *others = re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join((inspect.getdoc(thing) or "").split()))
    words = " ".join([first, *(each for each in others if each.startswith("Raises"))]).replace("``", "`")
    # Where else to look is of use beside the code only.
    return re.sub(r"; see [^.]+(\.py)?(?=\.)| \(model/\w+\.py\)", "", words)


def _errors(error: type[BaseException], depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- `{error.__name__}`: {told(error)}"
    for each in error.__subclasses__():
        if each.__name__ in errors.__all__:
            yield from _errors(each, depth + 1)
