"""The pipeline on Spark: a session, the log as a data source, and one file for each job: a query or two, and what must be done beside it.

| module | what |
|---|---|
| `session` | a quiet session, started fast, by master URL, spark-submit or Spark Connect; Ctrl-C while it starts |
| `java` | which Java runtime, and what makes it start fast |
| `worker_daemon` | what Python workers are forked from |
| `data_source` | ``format("brokerha")``: the log as a table and as a stream of batches; its sink: rows become transactions |
| `frames` | the log of an archive, and the state at an LSN, as DataFrames |
| `archive` | the stream into a Delta table |
| `audit` | files, chain, fingerprint, copies of workers |
| `rebuild`, `export` | the state at an LSN, as a copy that a worker starts from, or as tables |
| `load` | files as DataFrames for the sink |
| `report` | the counts of a report |
| `registration` | `pyspark_brokerha`, by whose name Spark finds the data source |
"""
