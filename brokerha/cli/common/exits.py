"""Exit codes, and the line that reports an operating error.

    0   done; the cluster is healthy          3    no node can be reached
    1   the cluster is degraded               64   the command line is wrong
    2   failed, or a person has to act        77   the user is not known, or lacks the right
                                              78   the cluster file is wrong

An operating error is never a traceback: one line on standard error tells what happened, why, and what to do. Every other exception
is a bug in brokerha, and is shown in full.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

from brokerha.model import errors, states

DONE = 0
DEGRADED = 1
FAILED = 2
UNREACHABLE = 3
USAGE = 64
NOT_ALLOWED = 77
"""As sysexits.h has it: a watcher must not take a forgotten token for a cluster that needs a person."""
CONFIGURATION = 78
INTERRUPTED = 130
"""128 + SIGINT: what a shell expects after Ctrl-C."""
PIPE_CLOSED = 141
"""128 + SIGPIPE: the reader of the output went away."""


class ReaderGone(Exception):
    """The reader of the output went away. With Python's own error, typer would exit with 1, as for a degraded cluster."""


_CODES: tuple[tuple[type[errors.BrokerhaError], int], ...] = (
    (errors.ConfigurationError, CONFIGURATION),
    (errors.Unreachable, UNREACHABLE),
    (errors.NotAllowed, NOT_ALLOWED),
)

_REMEDIES: tuple[tuple[type[errors.BrokerhaError], str], ...] = (
    (errors.Unreachable, "start the nodes (brokerha up), or name another one with --url"),
    (errors.OutcomeUnknown, "ask later with: brokerha wait {txid}; the same write with --key {txid} takes effect once"),
    (errors.NotReady, "try again; brokerha status says what is missing"),
    (errors.NotAllowed, "say who you are with BROKERHA_TOKEN_FILE, or BROKERHA_USER and BROKERHA_PASSWORD_FILE"),
    (errors.Conflict, "nothing was changed; run it again"),
    (errors.Rejected, "nothing was changed"),
    (errors.Aborted, "nothing was changed; run it again"),
)
_SAYS_AGAIN: Final = re.compile(r"\b(try|say it) again\b")
"""Finds texts that already tell the user to try again."""


def exit_code_of(error: errors.BrokerhaError) -> int:
    """Return the exit code for this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def error_line(error: errors.BrokerhaError) -> str:
    """Return one line: what happened, why, and what to do."""
    text = " ".join(str(error).split()) or type(error).__name__
    own = getattr(error, "remedy", "")
    usual = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
    if isinstance(error, errors.NotReady) and _SAYS_AGAIN.search(text):
        usual = ""
    if isinstance(error, errors.OutcomeUnknown) and not error.txid:
        # A command has no transaction; its text says what to do.
        usual = ""
    remedy = "" if own is None else own or usual.format(txid=getattr(error, "txid", ""))
    return f"{text}; {remedy}" if remedy else text


def say(text: str) -> None:
    """Write one line for the user to standard error, so that the output stays clean."""
    print(f"brokerha: {text}", file=sys.stderr, flush=True)


def exit_code_of_states(words: Iterable[str]) -> int:
    """Return the exit code of the worst state; a word that this version does not know needs a person."""
    seen = set(words)
    if seen <= states.HEALTHY:
        return DONE
    return DEGRADED if seen <= states.HEALTHY | states.DEGRADED else FAILED
