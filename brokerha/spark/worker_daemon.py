"""The process from which Spark forks its Python workers: like ``pyspark.daemon``, but loads all modules before the first fork.

    python -m brokerha.spark.worker_daemon pyspark.worker        started by Spark (``spark.python.daemon.module``, session.py)

It avoids three delays of the first tasks of a job, or does their work once instead of in each worker:

- Spark puts a zip of PySpark's sources before the installed PySpark, and Python compiles modules from a zip at each start.
- Each worker would load numpy, pyarrow and the modules that tasks use.
- After each task a worker scans all of its objects for cycles. Objects loaded here are frozen, so the scan skips them.

Must never print: Spark reads a port from standard output.
"""

from __future__ import annotations

import gc
import importlib
import sys
from importlib.util import find_spec
from typing import Final

ZIPPED: Final = "pyspark.zip"
LOADED: Final = (
    "pyarrow.compute", "pyarrow.parquet", "deltalake", "brokerha.pipeline.rows", "brokerha.pipeline.sources",
    "brokerha.pipeline.table", "pyspark.worker",
)  # fmt: skip


def main() -> None:
    """Load and freeze all modules, and run Spark's daemon until Spark closes standard input."""
    given = list(sys.path)
    sys.path[:] = [path for path in given if not path.endswith(ZIPPED)]
    if find_spec("pyspark") is None:
        sys.path[:] = given
    daemon = importlib.import_module("pyspark.daemon")
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
