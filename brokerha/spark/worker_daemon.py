"""What Spark forks its Python workers from, instead of its own ``pyspark.daemon``: the same, with everything loaded before the first fork.

    python -m brokerha.spark.worker_daemon pyspark.worker        started by Spark (``spark.python.daemon.module``, session.py)

Three things make the first tasks of a job wait, and are done once here instead of in each worker, or not at all:

- Spark puts its own copy of PySpark, a zip of sources, in front of the installed one, and Python compiles what comes from a zip at each start.
- Each worker would load numpy, pyarrow and the modules that tasks use.
- After each task a worker looks through all of its objects for cycles. Those that were loaded here are frozen, so they are passed over.

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
    """Load, freeze, and be Spark's daemon until Spark closes standard input."""
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
