"""Reads of one repository at one moment, on top of operations that nobody else sees: one transaction of the engine that aborts.

    DELETE { } INSERT { } WHERE { BIND(<begun>() AS ?brokerha_begun) } ;     the snapshot is taken: others may write again
    the operations of an open transaction ;                                  sparql/scratch.py
    the reads ; ...                                                          question.py
    CREATE SILENT GRAPH <x> ; CREATE GRAPH <x>                               fails: all of the above is undone

Such a transaction takes no lock: commits go on beside it, and it does not see them. The engine reads the whole text before it takes its
snapshot, so a caller that holds writers up until ``begun`` is called holds them for that long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pyoxigraph import Literal, NamedNode, Store

from brokerha.model.errors import InvalidRequest
from brokerha.stores.rdf.change import AS_BLANK_FUNCTIONS
from brokerha.stores.rdf.errors import is_of_files, store_error
from brokerha.stores.rdf.question import Question
from brokerha.stores.rdf.terms import SYSTEM_GRAPH, Function, Graph
from brokerha.stores.sparql.scratch import ScratchText
from brokerha.stores.sparql.tokens import MESSAGE_LIMIT, RESERVED
from brokerha.stores.sparql.union import union_of
from brokerha.stores.sparql.update import END, HIDE

_BEGUN: Final = NamedNode(f"{RESERVED}begun")
_DONE: Final = Literal(True)


def evaluate(
    engine: Store,
    scratch: ScratchText,
    questions: Sequence[Question],
    begun: Callable[[], None],
    may_go_on: Callable[[], bool],
    union: Iterable[Graph] | None = None,
) -> None:
    """Have the engine report the rows of all questions; ``begun`` is called once, when its snapshot is taken.

    ``union``: the named graphs of the engine, if the default graph of queries is the union of all (sparql/union.py).

    Raises what ``begun`` raised, InvalidRequest when something cannot be evaluated, StoreError.
    """
    start = _Start(begun)
    functions: dict[NamedNode, Function] = {**AS_BLANK_FUNCTIONS, **scratch.functions, _BEGUN: start}
    if union is not None:
        scratch.check_union()
    pieces = [f"DELETE {{ }} INSERT {{ }} WHERE {{ BIND({_BEGUN}() AS ?brokerha_begun) }};\n", HIDE, scratch.text]
    # Those that tell graphs apart come first: the union is made by moving quads about.
    using = ""
    for number, question in sorted(enumerate(questions), key=lambda each: each[1].is_query):
        if question.is_query and union is not None:
            prepare, using = union_of(engine, union, scratch.graphs)
            pieces.append(prepare)
            union = None
        pieces.append(question.text(number, using))
        functions.update(question.functions(number, may_go_on))
    try:
        engine.update("".join([*pieces, END]), custom_functions=functions)
    except (SyntaxError, OSError, RuntimeError) as error:
        if is_of_files(error):
            raise store_error(error, "the repository cannot be read") from error
        if str(error) != f"The graph {SYSTEM_GRAPH} already exists":
            raise InvalidRequest(
                f"this cannot be evaluated within a transaction or in a read of kind together: {error}"[:MESSAGE_LIMIT]
            ) from None
    start.check()
    scratch.check()


class _Start:
    """Calls a function once, and keeps what it raises from the engine, which would take that for an unbound value."""

    def __init__(self, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._is_called = False
        self._fault: BaseException | None = None

    def __call__(self) -> Literal:
        if not self._is_called:
            self._is_called = True
            try:
                self._begun()
            except BaseException as fault:  # noqa: BLE001  Whatever it is must not vanish inside the engine.
                self._fault = fault
        return _DONE

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault
