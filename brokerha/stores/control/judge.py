"""The judgement of the control suite on one transaction: after all of its operations, before any change is kept.

    touched checks, as they are after the transaction        about its keys, its repositories, and those it adds
      -> key checks        on the transaction's own puts and deletes, over the state of the batch
      -> queries           the engine with pending quads and the transaction's change, without a trace (run.py)
      -> the first failed check, in the order of names, is the reason of the rejection

Depends on the content and the transaction alone, so that every site gives the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from brokerha.model.control import KEY, Check, failure
from brokerha.model.errors import Rejected
from brokerha.model.invariants import invariant
from brokerha.model.operations import OnKey
from brokerha.stores.control import keys as control_keys
from brokerha.stores.control.suite import Suite
from brokerha.stores.execution.evaluation import Evaluation
from brokerha.stores.tables.key_range import row_key_of

Problems = Callable[[str, list[Check]], dict[str, str]]
"""(repository, checks about it) -> problem of each failed check, by name."""


def judge(
    after: Suite,
    names: set[str],
    value_of: Callable[[bytes], bytes | None],
    problems_of: Problems,
) -> None:
    """Raise Rejected when one of these checks does not hold after a transaction.

    `after` is the suite after the transaction, `value_of` gives the value of a key after it, and `problems_of` judges the queries
    about one repository.
    """
    problems: dict[str, str] = {}
    of_repositories: dict[str, list[Check]] = {}
    for name in sorted(names):
        check = after.checks[name]
        if check.kind == KEY:
            problem = control_keys.problem_of(check.expected, value_of(row_key_of(check.target, check.text.encode())))
            if problem:
                problems[name] = problem
        else:
            of_repositories.setdefault(check.target, []).append(check)
    for repository, checks in of_repositories.items():
        problems.update(problems_of(repository, checks))
    if problems:
        name = min(problems)
        raise Rejected(failure(after.checks[name], problems[name]))


def judge_evaluation(
    suite: Suite,
    keys: Mapping[bytes, OnKey],
    evaluation: Evaluation | None,
    stored: Callable[[bytes], bytes | None],
) -> None:
    """Raise Rejected when a check that a transaction touches fails after it. Raises StoreError.

    `suite` and `stored` are the state before it; `keys` is its last operation on each key, `evaluation` all other operations.
    """
    control = None if evaluation is None else evaluation.control
    after = control.after() if control else suite
    names = after.touched(keys.keys(), () if evaluation is None else evaluation.touched())
    if control:
        names |= control.added()
    if not names:
        return

    def value_of(row_key: bytes) -> bytes | None:
        operation = keys.get(row_key)
        if operation is None:
            return stored(row_key)
        return operation.after

    def problems_of(repository: str, checks: list[Check]) -> dict[str, str]:
        invariant(evaluation is not None, "keys touch no repository")
        return {} if evaluation is None else evaluation.problems(repository, checks)

    judge(after, names, value_of, problems_of)
