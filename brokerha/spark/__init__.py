"""The jobs of the pipeline on Spark; thin: what they compute is in `brokerha.pipeline`, which knows no Spark.

| module | what |
|---|---|
| `session` | a quiet session, started fast, by master URL |
| `interrupts` | Ctrl-C while Spark starts or works |
| `java` | which Java runtime |
| `java_start` | what makes it start fast |
| `data_source` | ``format("brokerha")``: the log as a table and as a stream of batches; the way to the sink |
| `state` | rows of an archive, and the state at an LSN, as tables of Spark |
| `audit` | pieces of an archive as tasks |
| `sink` | the writers of ``format("brokerha")``: rows become transactions |
| `load` | files as DataFrames for the sink |
| `report`, `report_changes` | the counts of a report |
"""
