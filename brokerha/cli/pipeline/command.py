"""``brokerha pipeline``: shared options of the jobs on Spark, finding a job, and its progress.

An option with its own help text in a command, such as ``--dry-run``, stays in that command. Spark and pyarrow are imported only
when a job runs, so that ``--help`` is fast and works without the extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common.command import Group, Options
from brokerha.cli.common.terminal import progress
from brokerha.model.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from brokerha.spark.session import SparkOptions

JOBS = "brokerha.jobs"
"""Entry point group: name of a job -> function that starts Spark and runs it."""
NEEDED = "the pipeline needs Spark: pip install 'brokerha[spark]'"

app = Group("Jobs on Spark: archive, audit, rebuild, export, load.", no_args_is_help=True)


def place_of(text: str) -> str:
    """Return a folder or URL in the form of `brokerha.pipeline.places.place`. Raises typer.BadParameter for an unsupported one."""
    from brokerha.pipeline.places import place

    try:
        return place(text)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None


ArchiveOption = Annotated[str, typer.Option("--archive", metavar="PLACE", help="The archive, a folder or a URL.", parser=place_of)]


class Spark(Options):
    """Where Spark runs, and its settings."""

    def __init__(
        self,
        # Empty: that of spark-submit or SPARK_REMOTE, else all cores of this machine (brokerha.spark.session).
        spark_master: Annotated[
            str,
            typer.Option(
                "--spark-master", envvar="BROKERHA_SPARK_MASTER", metavar="URL",
                help="Where Spark runs: local[N,TRIES], spark://HOST:PORT, yarn, k8s://…, sc://HOST:PORT.",
            ),
        ] = "",
        spark_memory: Annotated[
            str, typer.Option("--spark-memory", metavar="SIZE", help="Memory of Spark's driver, such as 2g.")
        ] = "2g",
        spark_conf: Annotated[
            list[str], typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark; can be repeated.")
        ] = [],  # noqa: B006  (typer copies it)
    ) -> None:  # fmt: skip
        self._master = spark_master
        self._memory = spark_memory
        self._conf = spark_conf

    def options(self) -> SparkOptions:
        """Return all of them. Raises typer.BadParameter."""
        from brokerha.spark.session import SparkOptions

        settings = {}
        for each in self._conf:
            key, sign, value = each.partition("=")
            if not sign or not key:
                raise typer.BadParameter(f"--spark-conf takes KEY=VALUE, not {each!r}")
            settings[key] = value
        return SparkOptions(self._master, self._memory, settings)


def job(name: str) -> Callable[..., Any]:
    """Return the program of a job. Raises ConfigurationError when Spark or the program is not installed."""
    from importlib.metadata import entry_points

    needed()
    for found in entry_points(group=JOBS, name=name):
        program: Callable[..., Any] = found.load()
        return program
    raise ConfigurationError(f"no program for the job {name} is installed (entry point group {JOBS})")


def needed() -> None:
    """Raise ConfigurationError when the extra is not installed."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("pyspark", "pyarrow", "deltalake", "jinja2", "vl_convert")):
        raise ConfigurationError(NEEDED)


@contextmanager
def progress_of(what: str, unit: str, total: float | None = None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function for the progress of a job: ``tell(done, total)`` moves a bar, or does nothing without a terminal.

    A smaller value than before restarts at 0: each query of a following archive job counts anew.
    """
    done_before = 0
    with progress(what, total, unit) as meter:

        def tell(done: int, _total: int) -> None:
            nonlocal done_before
            meter.advance(done - done_before if done >= done_before else done)
            done_before = done

        yield tell
