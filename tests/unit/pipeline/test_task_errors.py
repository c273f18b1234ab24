"""What ends a task on Spark crosses as the page of text that Spark makes of it, with what a person does about it."""

from __future__ import annotations

import traceback

import pytest

from brokerha.model.errors import BrokerhaError, NotReady, Unreachable
from brokerha.pipeline.publishing import Result, SinkOptions
from brokerha.spark.session import error_of_task


def unreachable(remedy: str | None) -> Unreachable:
    return Unreachable("the broker refuses amqp://guest@127.0.0.1:5672/orders: login refused", remedy)


def page_of(error: BrokerhaError) -> str:
    lines = "".join(traceback.format_exception(error))
    return f"An error occurred while calling o42.save.\n: org.apache.spark.SparkException: Traceback …\n{lines}\n\tat org.apache.spark.api…\n"


@pytest.mark.parametrize("remedy", ["start the broker", "", None])
def test_an_error_of_a_task_keeps_its_remedy(remedy: str | None) -> None:
    error = unreachable(remedy)
    found = error_of_task(page_of(error))
    assert isinstance(found, Unreachable)
    assert (str(found), found.remedy) == (str(error), remedy)


def test_an_error_without_a_remedy_is_what_it_was() -> None:
    found = error_of_task(page_of(NotReady("the log went back")))
    assert isinstance(found, NotReady)
    assert str(found) == "the log went back"


@pytest.mark.parametrize("remedy", ["start the broker", None])
def test_what_ended_a_load_keeps_its_remedy(remedy: str | None) -> None:
    done = Result()
    done.add(Result(error="Unreachable", reason="no broker at 127.0.0.1:5672", remedy=remedy, is_stopped=True))
    with pytest.raises(Unreachable, match="no broker at") as raised:
        done.check(SinkOptions(url="amqp://127.0.0.1"), "load-1")
    assert raised.value.remedy == remedy
