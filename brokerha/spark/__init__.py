"""The pipeline on Spark: a session, the log as a data source, and one module for each job.

| module | content |
|---|---|
| `session` | a quiet session that starts fast, by master URL, spark-submit or Spark Connect; Ctrl-C during the start |
| `java` | choice of the Java runtime, and its fast start |
| `worker_daemon` | the process from which Python workers are forked |
| `data_source` | ``format("brokerha")``: the log as a table and as a stream of batches; its sink: rows become transactions |
| `frames` | the log of an archive or cluster, and the state at an LSN, as DataFrames |
| `archive` | the stream of the log into a Delta table |
| `audit` | checks of files, chain, fingerprint and copies of workers |
| `rebuild`, `export` | the state at an LSN, as a copy from which a worker starts, or as tables |
| `load` | files as DataFrames for the sink |
| `report` | counts for a report |
| `registration` | `pyspark_brokerha`, the module name by which Spark finds the data source |
"""
