"""Registers ``format("brokerha")``: Spark looks for top-level modules whose names begin with ``pyspark_``."""

from brokerha.spark.data_source import BrokerhaSource as DefaultSource

__all__ = ["DefaultSource"]
