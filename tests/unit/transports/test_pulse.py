"""Whether a channel is still served: asked while it is used, once at a time, and no answer is an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amqp.exceptions import RecoverableConnectionError

from brokerha.transports.rabbitmq.quiet_channel import EVERY_S, Pulse


class Asked:
    """Keeps the questions."""

    def __init__(self) -> None:
        self.questions: list[Callable[[], None]] = []

    def ask(self, on_answer: Callable[[], None]) -> None:
        self.questions.append(on_answer)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_channel_that_is_not_used_is_not_asked(asked: Asked) -> None:
    pulse = Pulse(asked.ask, 2.0)
    assert pulse.turn(10.0, is_used=False) > 1_000
    assert asked.questions == []


def test_an_answer_ends_a_question_and_the_next_comes_a_second_later(asked: Asked) -> None:
    pulse = Pulse(asked.ask, 2.0)
    assert pulse.turn(10.0, is_used=True) == 12.0
    assert pulse.turn(11.5, is_used=True) == 12.0
    assert len(asked.questions) == 1
    asked.questions[0]()
    assert pulse.turn(10.0 + EVERY_S / 2, is_used=True) > 1_000
    assert pulse.turn(20.0, is_used=True) == 22.0
    assert len(asked.questions) == 2


def test_no_answer_is_an_end_whether_the_channel_is_used_or_not(asked: Asked) -> None:
    pulse = Pulse(asked.ask, 2.0)
    pulse.turn(10.0, is_used=True)
    with pytest.raises(RecoverableConnectionError, match="does not answer on a channel"):
        pulse.turn(12.0, is_used=False)


def test_no_answer_is_due_while_the_broker_takes_nothing(asked: Asked) -> None:
    pulse = Pulse(asked.ask, 2.0)
    pulse.turn(10.0, is_used=True)
    pulse.pause(11.9)
    assert pulse.turn(12.0, is_used=False) == pytest.approx(13.9)
    with pytest.raises(RecoverableConnectionError):
        pulse.turn(13.9, is_used=False)
