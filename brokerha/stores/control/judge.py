"""The judgement of the control suite on one transaction: after all of its operations, before any change is kept.

    touched checks, as they are after the transaction        about its keys, its repositories, and those it adds
      -> key checks        on the transaction's own puts and deletes, over the state of the batch
      -> queries           the engine with pending quads and the transaction's change, without a trace (sparql.py)
      -> the first failed check, in the order of names, is the reason of the rejection

Depends on the content and the transaction alone, so that every site gives the same reason.

Conditions on the value of a key:

    present    absent             there is such a key, or there is none
    = VALUE    != VALUE           the value, as UTF-8 text, is this one or another; a key that is not there fulfils !=
    >= NUMBER  <= NUMBER          the value is a number in plain decimal notation, compared exactly

>>> problem_of(">= 0", b"-1")
'expected >= 0, found -1'
>>> problem_of(">= 0", b"0.0")
''
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from brokerha.model.control import KEY, Check, Condition, condition_of, failure, number_of, shortened
from brokerha.model.errors import Rejected
from brokerha.model.invariants import invariant
from brokerha.model.operations import OnKey
from brokerha.stores.control.suite import Suite
from brokerha.stores.execution.evaluation import Evaluation
from brokerha.stores.tables.key_range import row_key_of

Problems = Callable[[str, list[Check]], dict[str, str]]
"""(repository, checks about it) -> problem of each failed check, by name."""


def problem_of(expected: str, value: bytes | None) -> str:
    """Return an empty string when the value (None: no such key) is as expected, else the expected and the found value."""
    condition = condition_of(expected)
    invariant(condition is not None, "a check has a condition", expected=expected)
    if condition is None or _holds(condition, value):
        return ""
    return f"expected {shortened(expected)}, found {_shown(value)}"


def _holds(condition: Condition, value: bytes | None) -> bool:
    sign = condition.sign
    if value is None:
        return sign in {"absent", "!="}
    if sign in {"present", "absent"}:
        return sign == "present"
    if sign in {"=", "!="}:
        return (value == condition.value.encode()) is (sign == "=")
    found, bound = number_of(_text(value) or ""), number_of(condition.value)
    if found is None or bound is None:
        return False
    return found >= bound if sign == ">=" else found <= bound


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _shown(value: bytes | None) -> str:
    if value is None:
        return "no such key"
    text = _text(value)
    if text is None or not text.isprintable():
        return f"{len(value)} bytes that are no printable text"
    return shortened(text) or "an empty value"


def judge(after: Suite, names: set[str], value_of: Callable[[bytes], bytes | None], problems_of: Problems) -> None:
    """Raise Rejected when one of these checks does not hold after a transaction.

    `after` is the suite after the transaction, `value_of` gives the value of a key after it, and `problems_of` judges the queries
    about one repository.
    """
    problems: dict[str, str] = {}
    of_repositories: dict[str, list[Check]] = {}
    for name in sorted(names):
        check = after.checks[name]
        if check.kind == KEY:
            problem = problem_of(check.expected, value_of(row_key_of(check.target, check.text.encode())))
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
    suite: Suite, keys: Mapping[bytes, OnKey], evaluation: Evaluation | None, stored: Callable[[bytes], bytes | None]
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
