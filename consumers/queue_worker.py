"""Take messages from a queue, work on each, and store the result: message, result and notice are one transaction.

    python -m brokerha.programs.consumers.queue_worker --cluster http://127.0.0.1:7201 --queue inbox --table done --outbox outbox

Replace `work` with your own. After a crash at any moment, either the message is in the queue or its result is in the table, never both
and never neither. A message that `work` refuses (ValueError) moves to the queue `--aside` with the reason. Start as many of these
programs as you like, at any master. The program waits for an absent cluster. SIGTERM ends it after the current message, with exit code 0.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity import wait_random_exponential as growing

import brokerha
from brokerha.errors import Aborted, ConfigurationError, NotReady, OutcomeUnknown, Rejected, Unreachable

LOOK_S = 0.5
"""Longest time between two checks of `stopping`."""
log = logging.getLogger("queue_worker")


def work(body: bytes) -> bytes:
    """Return the result of a message: here, the sum of the numbers of a JSON list. Raises ValueError."""
    numbers = json.loads(body)
    if not isinstance(numbers, list) or not all(isinstance(each, int) for each in numbers):
        raise ValueError("no list of whole numbers")
    return str(sum(numbers)).encode()


def consume(cluster: brokerha.Client, options: argparse.Namespace, stopping: threading.Event) -> None:
    """Work until `stopping` is set. Raises errors that a retry can cure; Rejected, for instance, after a check was mended."""
    while not stopping.is_set():
        for message in cluster.consume(options.queue, wait=LOOK_S):
            transaction = message.transaction
            try:
                result = work(message.body)
            except ValueError as error:
                transaction.publish(options.aside, message.body, message.content_type)
                log.error("message %s is put aside: %s", message.id, error)
            else:
                transaction.put(options.table, message.id, result)
                transaction.publish(options.outbox, result, "text/plain")
            # Commit here and not at the end of the loop, so that the next lines know the outcome.
            log.info("message %s is done at LSN %d", message.id, transaction.commit().lsn)
            if stopping.is_set():
                return


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="queue_worker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cluster", required=True, help="http://… or amqp://…")
    parser.add_argument("--queue", default="inbox")
    parser.add_argument("--table", default="done", help="gets a result for each message id")
    parser.add_argument("--outbox", default="outbox", help="queue that gets each result")
    parser.add_argument("--aside", default="aside", help="queue for messages that cannot be worked on")
    options = parser.parse_args()
    try:
        cluster = brokerha.connect(options.cluster)
    except ConfigurationError as error:
        parser.error(f"--cluster: {error}")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with cluster:
        again = Retrying(
            retry=retry_if_exception_type((Aborted, NotReady, OutcomeUnknown, Rejected, Unreachable)), wait=growing(0.2, max=10),
            stop=stop_when_event_set(stopping), sleep=sleep_using_event(stopping), before_sleep=before_sleep_log(log, logging.WARNING),
            retry_error_callback=lambda _: None,
        )  # fmt: skip
        again(consume, cluster, options, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
