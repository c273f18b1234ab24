"""The bulk load: publishes the content of files from Spark's tasks. Spark is started for what can be done at the same time, and stopped after it.

One split, or splits that have to come one after the other, are read in this process: starting Spark would only take longer.

``brokerha pipeline load`` finds it by the entry point group ``brokerha.jobs``.
"""

from __future__ import annotations

from collections.abc import Callable

import brokerha
from brokerha.pipeline.loading import LoadJob, LoadOptions, LoadReport, Split, SplitResult, Tell
from brokerha.pipeline.loading_job import one_after_the_other, run_load
from brokerha.spark.load import run_splits
from brokerha.spark.session import SparkOptions, session


def load(options: LoadOptions, spark_options: SparkOptions, tell: Tell) -> LoadReport:
    """Load files. Raises what `run_load` and `session` raise; before Spark starts, if it can be known by then."""

    def run(job: LoadJob, splits: list[Split], progress: Callable[[], None]) -> list[SplitResult]:
        if options.is_ordered or len(splits) == 1:
            return one_after_the_other(job, splits, progress)
        with session("load", spark_options) as spark:
            return run_splits(spark, job, splits, progress)

    return run_load(options, run, tell, brokerha.connect)
