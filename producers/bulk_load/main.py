"""The bulk load: starts Spark, loads files, and stops Spark.

``brokerha pipeline load`` finds it by the entry point group ``brokerha.jobs``.
"""

from __future__ import annotations

from brokerha.pipeline.loading import LoadOptions, LoadReport, Tell
from brokerha.spark import load as on_spark
from brokerha.spark.session import SparkOptions, session


def load(options: LoadOptions, spark_options: SparkOptions, tell: Tell) -> LoadReport:
    """Load files. Raises what `brokerha.spark.load.load` and `session` raise."""
    with session("load", spark_options) as spark:
        return on_spark.load(spark, options, tell)
