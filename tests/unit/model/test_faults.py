"""A fault in a log is bounded, and holds nothing of the variables that it went through."""

from __future__ import annotations

from brokerha.model.faults import ERRORS_LIMIT, FRAMES_LIMIT, REASON_LIMIT, fault_fields


def caught(function, *arguments: object) -> BaseException:
    try:
        function(*arguments)
    except (RecursionError, ValueError) as error:
        return error
    raise AssertionError("nothing was raised")


def deep(secret: str) -> int:
    return deep(secret) + 1


def causing(number: int, secret: str) -> None:
    try:
        if number:
            causing(number - 1, secret)
        dict[str, int]()["inside"]
    except (KeyError, ValueError) as error:
        raise ValueError(number) from error


def test_the_text_of_a_fault_is_cut_and_its_type_named():
    fields = fault_fields(ValueError("x" * 10_000))

    assert fields["error"] == "ValueError"
    assert len(fields["reason"]) == REASON_LIMIT
    assert fields["reason"].endswith("...")


def test_of_a_deep_recursion_the_innermost_frames_are_told_without_variables():
    fields = fault_fields(caught(deep, "canary"))

    assert fields["stack"].count(" deep") == FRAMES_LIMIT
    assert "canary" not in str(fields)
    assert len(str(fields)) < 5000


def test_causes_are_told_before_what_they_led_to_and_no_more_than_a_few():
    stack = fault_fields(caught(causing, 10, "canary"))["stack"].splitlines()

    types = [line for line in stack if not line.startswith(" ")]
    assert types == ["ValueError"] * ERRORS_LIMIT
    assert "canary" not in str(stack)
    first = fault_fields(caught(causing, 0, "canary"))["stack"].splitlines()
    assert [line for line in first if not line.startswith(" ")] == ["KeyError", "ValueError"]
