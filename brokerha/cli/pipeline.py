"""``brokerha pipeline``: the jobs that run on Spark. Options they share, and how a job is found and told.

Neither Spark nor pyarrow is imported before a job runs, so that ``--help`` is fast and works without the extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.progress import progress
from brokerha.model.errors import ConfigurationError

if TYPE_CHECKING:
    from brokerha.spark.session import SparkOptions

JOBS = "brokerha.jobs"
"""Entry point group: name of a job -> function that starts Spark and runs it."""
NEEDED = "the pipeline needs Spark: pip install 'brokerha[spark]'"

app = typer.Typer(
    help="Jobs on Spark: archive the log, audit it, rebuild any state of it, load files, report.", no_args_is_help=True
)

MasterOption = Annotated[
    str,
    typer.Option(
        "--spark-master", envvar="BROKERHA_SPARK_MASTER", metavar="URL",
        help="Where Spark runs: local[N,TRIES], spark://HOST:PORT, yarn, k8s://…",
    ),
]  # fmt: skip
MemoryOption = Annotated[
    str, typer.Option("--spark-memory", metavar="SIZE", help="Memory of Spark's driver, such as 2g.")
]
ConfOption = Annotated[
    list[str], typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
DEFAULT_MASTER = "local[2,4]"
DEFAULT_MEMORY = "2g"


def spark_options(master: str, memory: str, conf: list[str]) -> SparkOptions:
    """The three options together. Raises typer.BadParameter."""
    from brokerha.spark.session import SparkOptions

    settings = {}
    for each in conf:
        key, sign, value = each.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f"--spark-conf takes KEY=VALUE, not {each!r}")
        settings[key] = value
    return SparkOptions(master, memory, settings)


def job(name: str) -> Callable[..., Any]:
    """The program of a job. Raises ConfigurationError when Spark or the program is not installed."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise ConfigurationError(NEEDED)
    for found in entry_points(group=JOBS, name=name):
        program: Callable[..., Any] = found.load()
        return program
    raise ConfigurationError(f"no program for the job {name} is installed (entry point group {JOBS})")


@contextmanager
def progress_of(what: str, unit: str, total: float | None = None) -> Iterator[Callable[[int, int], None]]:
    """What a job is given to tell how far it is: ``tell(done, total)`` moves a bar, or does nothing without a terminal."""
    done_before = 0
    with progress(what, total, unit) as meter:

        def tell(done: int, _total: int) -> None:
            nonlocal done_before
            meter.advance(done - done_before)
            done_before = done

        yield tell
