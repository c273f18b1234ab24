"""Parsers of C and Rust in processes that can die: a body that ends or bloats its parser is refused, and the node goes on.

    parsers = Parsers()
    parsers.run(nquads_of, body, "text/turtle", txid="t-1")       as nquads_of(body, ...), from any thread but a loop's

The first body that is not plain starts a process, which stays for the next. A process that ended during a body is replaced at the
next call. Requests and answers are msgpack: texts, bytes, numbers, lists, None.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import msgpack
import structlog

from brokerha.ingress.limits import ParserLimits
from brokerha.model import errors
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady

log = structlog.get_logger()

LENGTH: Final = struct.Struct(">I")
PRELOADED: Final = (
    "brokerha.ingress.rdf_bodies:nquads_of",
    "brokerha.stores.rdf.change:check_nquads",
    "brokerha.stores.sparql.protocol:check_update",
)
"""Functions that a process imports before the first body."""
_READ_BYTES: Final = 1024 * 1024

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Parsers:
    """A few parser processes. Any thread can call them; `close` ends them."""

    def __init__(self, limits: ParserLimits | None = None) -> None:
        self.limits = limits or ParserLimits()
        self.limits.check()
        self._free: list[_Process] = []
        self._turn = threading.Semaphore(self.limits.processes)
        self._lock = threading.Lock()
        self._is_closed = False
        self.ended = 0
        """Number of bodies that ended a process."""

    def run(self, work: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Call a function in a parser process.

        Raises its errors (of model/errors.py), InvalidRequest when the body ended the process, NotReady when all are busy.
        """
        request: bytes = msgpack.packb([f"{work.__module__}:{work.__qualname__}", arguments, named, *self._shares(arguments)])
        if not self._turn.acquire(timeout=self.limits.wait_s):
            raise NotReady(f"all {self.limits.processes} parser processes are busy with other bodies: try again")
        try:
            answer = self._asked(request, self.limits.cpu_s_of(len(request)))
        finally:
            self._turn.release()
        name, text, result = msgpack.unpackb(answer, strict_map_key=False)
        if name:
            raise _error(name, text)
        found: Result = result
        return found

    def _shares(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        size = sum(len(each) for each in arguments if isinstance(each, (str, bytes)))
        return self.limits.cpu_s_of(size), self.limits.memory_of(size)

    def _asked(self, request: bytes, cpu_s: int) -> bytes:
        process = self._taken()
        try:
            answer = process.ask(request, time.monotonic() + cpu_s * self.limits.wall_factor)
        except BaseException as error:
            code = process.end()
            if not isinstance(error, EOFError):
                raise
            self.ended += 1
            log.warning("a parser process ended of a body, which was refused", exit_code=code, size=len(request))
            raise InvalidRequest(_reason(code, cpu_s)) from None
        with self._lock:
            if not self._is_closed:
                self._free.append(process)
                return answer
        process.end()
        return answer

    def _taken(self) -> _Process:
        with self._lock:
            while self._free:
                process = self._free.pop()
                if process.is_alive():
                    return process
                process.end()
        return _Process()

    def close(self) -> None:
        """End all processes; busy ones end after their body. Idempotent."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for process in free:
            process.end()


@functools.cache
def shared_parsers() -> Parsers:
    """Return the parser processes that all nodes and doors of this process share; they end with it."""
    parsers = Parsers()
    atexit.register(parsers.close)
    return parsers


class _Process:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "brokerha.ingress.parser_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=_environment(),
        )
        if self._popen.stdin is None or self._popen.stdout is None:
            raise RuntimeError("a process with pipes has pipes")
        self._in, self._out = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        os.set_blocking(self._in, False)

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: bytes, until_s: float) -> bytes:
        """Return the answer. Raises EOFError when the process ended, NotReady at the deadline."""
        self._write(LENGTH.pack(len(request)) + request, until_s)
        [length] = LENGTH.unpack(self._read(LENGTH.size, until_s))
        return self._read(length, until_s)

    def _write(self, data: bytes, until_s: float) -> None:
        left = memoryview(data)
        while left:
            self._wait([], [self._in], until_s)
            try:
                left = left[os.write(self._in, left[:_READ_BYTES]) :]
            except BrokenPipeError:
                raise EOFError from None
            except BlockingIOError:
                continue

    def _read(self, size: int, until_s: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            self._wait([self._out], [], until_s)
            piece = os.read(self._out, min(_READ_BYTES, size - len(found)))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)

    @staticmethod
    def _wait(reading: list[int], writing: list[int], until_s: float) -> None:
        poll = select.poll()
        for fd in reading:
            poll.register(fd, select.POLLIN)
        for fd in writing:
            poll.register(fd, select.POLLOUT)
        if not poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
            raise NotReady("the body was not parsed in its time, on a machine that is busy: try again, or split it")

    def end(self) -> int:
        """End the process in any case; return its exit code, negative for a signal. Idempotent."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        try:
            # It is dead already, or, if idle, sees the end of its input at once.
            return self._popen.wait(0.5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()


def _environment() -> dict[str, str]:
    """Return the environment of the node without its secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BROKERHA_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _reason(code: int, cpu_s: int) -> str:
    if code == -signal.SIGXCPU:
        return f"MALFORMED DATA: to parse the body takes more than {cpu_s} s of processor time: split it, or write it flatter"
    kind = "memory" if code == -signal.SIGABRT else "stack" if code == -signal.SIGSEGV else f"exit code {code}"
    return f"MALFORMED DATA: its parser ended at this body ({kind}): split it, or write it flatter"


def _error(name: str, text: str) -> Exception:
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, BrokerhaError):
        return kind(text)
    return RuntimeError(f"a parser process failed: {text}")
