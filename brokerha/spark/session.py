"""A quiet Spark session that starts fast: on this machine, on a cluster by its master URL, or on a server by Spark Connect.

    with session("archive", SparkOptions()) as spark:
        spark.range(3).count()

| a job runs on | when |
|---|---|
| the master of ``spark-submit`` | it started the program |
| the server in ``SPARK_REMOTE``, or a master ``sc://host:port`` | else, if set |
| the master of the options | else, if set |
| all cores of this machine, each task up to four times | else |

Settings of the environment are never overridden: with ``spark-submit`` or Spark Connect only settings of SQL are made here. Jobs
must not use `sparkContext`, which a session of Spark Connect does not have.

Loading and compiling classes makes a start slow (java.py reduces both). Spark's output goes to a log file in the cache folder, one
for each kind of job, so that the terminal belongs to the job; a failed task gives an error.

Spark's workers run this interpreter. On a cluster each node needs brokerha with the same Python version at the same path, or at the
one in ``--spark-conf spark.pyspark.python=…`` (docs/pipeline.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from brokerha.model import errors
from brokerha.model.errors import BrokerhaError, ConfigurationError, StoreError
from brokerha.spark import java, worker_daemon
from brokerha.spark.java import Runtime, find_runtime
from brokerha.stores.backup.lines import LinesMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CACHE_VARIABLE = "BROKERHA_SPARK_CACHE"
_OURS = re.compile(rf"\bbrokerha\.[a-z_.]+\.([A-Z]\w+): (.+)(?:\n({errors.REMEDY})(.*))?")
_OF_PYTHON = re.compile(r"(?!org\.|java|scala|py4j)[\w.]*(Error|Exception): ")
"""The last line of a traceback."""
WORDS_LIMIT = 300
"""Characters of Spark's text in an error."""
LOCAL_MASTER = "local[*,4]"
_LOCAL = "local"
_STANDALONE = "spark://"
_CONNECT, _CONNECT_PORT = "sc://", 15002
_BY_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""Variable with the port of the JVM that ``spark-submit`` has started for the program."""
_REMOTE = "SPARK_REMOTE"
_ANSWER_S = 5.0
"""Time in which a master of a standalone cluster must accept a connection."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SQL: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of every session."""
_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": worker_daemon.__name__,
}
"""Settings of a JVM that is started here."""
_OF_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Adaptive execution merges small partitions, but each of them is a task of its own before.
    "spark.sql.shuffle.partitions": "8",
}
_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n
"""
_MODULES_OF_PY4J = frozenset({"java_gateway", "clientserver"})


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How to run a job on Spark."""

    master: str = ""
    """``local[N,tries]``, ``spark://host:port``, ``yarn``, ``k8s://…``, ``sc://host:port``; see the head of the module."""
    memory: str = "2g"
    """Memory of the driver's JVM, in which everything runs with a local master."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Any setting of Spark; overrides the defaults here."""

    @property
    def where(self) -> str:
        """The master or server to use; empty for that of ``spark-submit``, which is never overridden."""
        if _BY_SUBMIT in os.environ:
            return ""
        return os.environ.get(_REMOTE) or self.master or LOCAL_MASTER

    @property
    def is_local(self) -> bool:
        """Whether everything runs in one JVM of this machine, which is started here."""
        return self.where.startswith(_LOCAL)


def cache_folder() -> Path:
    """Return the folder of class archives, the log and a script for the Java runtime; it can be deleted at any time."""
    named = os.environ.get(CACHE_VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(home) / "brokerha" / "spark"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"brokerha-spark-{os.getuid()}"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
    """Yield a session that ends with the block.

    Raises ConfigurationError: no Spark, no Java, an unreachable master. An error of Spark in the block becomes a StoreError.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise ConfigurationError("the pipeline needs Spark: pip install 'brokerha[spark]'")
    where = options.where
    _check_answer(where)
    cache = cache_folder()
    if not where or where.startswith(_CONNECT):
        settings = {**_SQL, **options.conf}
    else:
        runtime = find_runtime(cache)
        settings = _settings(cache, runtime, options)
        _prepare_environment(cache, runtime, options)
    log = cache / f"{name}.log"
    log.unlink(missing_ok=True)
    with _standard_error_to(log), start_is_clean():
        spark = _started(f"brokerha {name}", where, settings, log)
    try:
        with cut_off_questions_untold(), failures_told(log):
            yield spark
    finally:
        with _standard_error_to(log), contextlib.suppress(Exception):
            spark.stop()


@contextlib.contextmanager
def failures_told(log: Path) -> Iterator[None]:
    """Turn a fatal error of Spark into one error of one line: that of the task, if a brokerha task raised it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        with errors_of_tasks():
            yield
    except AnalysisException:
        # A wrong query is a bug in brokerha.
        raise
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise StoreError(f"Spark gave up ({words_of(error)}); what it said is in {log}") from None


@contextlib.contextmanager
def errors_of_tasks() -> Iterator[None]:
    """Raise an error of brokerha that ended a task as itself; leave other errors to Spark."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if (ours := error_of_task(str(error))) is not None:
            raise ours from None
        raise


def error_of_task(text: str) -> BrokerhaError | None:
    r"""Return the error of brokerha that ended a task, from Spark's text about it; the innermost one, which comes last.

    >>> error_of_task("Traceback …\n\nbrokerha.model.errors.NotReady: the log went back\n\n  at org.apache…")
    NotReady('the log went back')
    """
    for name, words, has_remedy, remedy in reversed(_OURS.findall(text)):
        known = getattr(errors, name, None)
        if isinstance(known, type) and issubclass(known, BrokerhaError):
            return errors.error_named(name, words.strip(), remedy=(remedy.strip() or None) if has_remedy else "")
        if name == LinesMissing.__name__:
            return LinesMissing(words.strip())
    return None


def words_of(error: Exception) -> str:
    """Return Spark's message in one line: the innermost cause, which comes last, else its first words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    of_python = [line for line in lines if _OF_PYTHON.match(line)]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (causes[-1:] or of_python[-1:] or told or lines or [type(error).__name__])[0].removeprefix(": ")[:WORDS_LIMIT]


def _started(name: str, master: str, settings: Mapping[str, str], log: Path) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master.startswith(_CONNECT):
        builder = builder.remote(master)
    elif master:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, ImportError) as error:
        raise ConfigurationError(
            f"Spark does not start{f' with master {master}' if master else ''} ({words_of(error)}); what it said is in {log}"
        ) from None


def _check_answer(master: str) -> None:
    """Raise ConfigurationError when no master of a standalone cluster, or no server of Spark Connect, accepts a connection.

    Spark itself retries for minutes, which no setting shortens, and then does not name the problem.
    """
    kind = next((each for each in (_STANDALONE, _CONNECT) if master.startswith(each)), None)
    if kind is None:
        return
    reason = ""
    for place in master.removeprefix(kind).partition("/")[0].split(","):
        if kind == _CONNECT and ":" not in place:
            place = f"{place}:{_CONNECT_PORT}"  # noqa: PLW2901
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            return  # Spark says what is wrong with the address.
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
        except (OSError, UnicodeError) as error:
            reason = str(getattr(error, "strerror", None) or error)
        else:
            return
    raise ConfigurationError(
        f"no {'master of Spark' if kind == _STANDALONE else 'server of Spark Connect'} answers at {master} ({reason}): start it, or name "
        f"another one with {f'--spark-master or {_REMOTE}' if kind == _CONNECT else '--spark-master'}"
    )


def _prepare_environment(cache: Path, runtime: Runtime, options: SparkOptions) -> None:
    """Set the variables for the JVM and the Python workers, before the first of them starts."""
    import pyspark

    if runtime.home is not None:
        os.environ["JAVA_HOME"] = str(runtime.home)
    own = Path(pyspark.__file__).parent
    # Else a shell script starts another Python only to find it.
    os.environ.setdefault("SPARK_HOME", str(spark_home(cache, own) if options.is_local else own))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", java.LAUNCHER)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def spark_home(cache: Path, own: Path) -> Path:
    """Make a folder for SPARK_HOME: links to everything in PySpark's own folder but its zip of sources.

    For each use of a data source Spark starts Python processes with that zip before the installed PySpark, and each would compile
    PySpark again. The folder is made atomically, because several processes can start at once.
    """
    home = cache / f"home-{hashlib.sha256(str(own).encode()).hexdigest()[:12]}"
    if not home.exists():
        partial = home.with_suffix(f".{os.getpid()}")
        partial.mkdir()
        for each in own.iterdir():
            if each.name != "python":
                (partial / each.name).symlink_to(each)
        try:
            partial.rename(home)
        except OSError:
            shutil.rmtree(partial)
    return home


def _settings(cache: Path, runtime: Runtime, options: SparkOptions) -> dict[str, str]:
    settings = {**_CONF, **_SQL, "spark.driver.memory": options.memory}
    if options.is_local:
        settings |= _OF_THIS_MACHINE
    settings |= options.conf
    given = settings.get(_JAVA_OPTIONS, "")
    java_options = [f"-Dlog4j2.configurationFile={_log4j(cache).as_uri()}"]
    if options.is_local:
        java_options += java.compiling(given)
        java_options += java.classes(cache, runtime)
    settings[_JAVA_OPTIONS] = " ".join([*java_options, given]).strip()
    return settings


def _log4j(cache: Path) -> Path:
    """Write the file that configures Spark's logging, atomically, because several processes can start at once."""
    file = cache / "log4j2.properties"
    if not file.exists() or file.read_text(encoding="utf-8") != _LOG4J:
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(_LOG4J, encoding="utf-8")
        partial.rename(file)
    return file


@contextlib.contextmanager
def _standard_error_to(file: Path) -> Iterator[None]:
    """Redirect the standard error of this process and its children into a file, during the block."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


# ---- Ctrl-C and SIGTERM


@contextlib.contextmanager
def start_is_clean() -> Iterator[None]:
    """Wrap the start of Spark: Ctrl-C and SIGTERM end it at once, and processes that were started in the block end when it fails.

    Spark takes over SIGINT for good, and forgets its JVM when it is interrupted before the JVM has reported its port. A JVM that is
    starting when its parent ends goes on for a minute.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = children()
    try:
        if is_main and handlers[signal.SIGTERM] is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)
        yield
    except BaseException:
        for child in children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        for number, handler in handlers.items():
            # None: a handler from outside Python, which Python cannot restore.
            if is_main and handler is not None:
                signal.signal(number, handler)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def cut_off_questions_untold() -> Iterator[None]:
    """Drop py4j's messages through the root logger during the block; they also come as errors.

    The same for its own loggers: their messages reach the root logger's handler, which exists after the first message.
    """
    loggers = [logging.root, *(logging.getLogger(f"py4j.{module}") for module in _MODULES_OF_PY4J)]
    for logger in loggers:
        logger.addFilter(_is_of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_of_others)


def children() -> set[int]:
    """Return the ids of child processes that have not been waited for."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        # A thread can end meanwhile.
        with contextlib.suppress(OSError):
            found.update(map(int, task.read_text(encoding="ascii").split()))
    return found


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.module not in _MODULES_OF_PY4J
