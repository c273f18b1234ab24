"""The log as data, without Spark: rows of changes, the table that archives them for years, and reports on both.

| module | content |
|---|---|
| `entries` | one log entry, the same for every source |
| `rows` | one row for each change: columns, and the conversion of entries to rows and back |
| `sources` | sources of entries: a node, a log stream, a stopped master's journal, a backup, an archive; their nodes |
| `ranges` | options of the data source: which entries to read, and in which parts |
| `places` | folders and URLs: which are supported, and file access; files named by their SHA-256, and their commits |
| `table` | the archive: a Delta table, its head and its chain |
| `observations` | status of nodes over time, stored beside the archive |
| `audit_rows`, `audit_copies` | checks of files, rows and workers |
| `publishing` | rows as transactions: the sink, with a table of its modules |
| `loading` | files as rows for the sink, with a table of its modules |
| `report` | the facts of a report, and its page (`report_page` with `report_page.html`) |
| `loading_columns` | rows of files as columns for the sink: by a mapping, or by a parser |
| `loading_mapping` | the mapping file: how a row of CSV, JSON or Parquet becomes RDF statements, or a key with its value |
| `publishing_rows` | operations of each row of the sink, and reasons to refuse a row |
| `publishing_task` | one task of the sink: a partition from its first row to the answer of its last transaction |

The parts that run on Spark are in `brokerha.spark`, so these modules are tested without a Java runtime. Needs pyarrow and
deltalake, from the extra ``brokerha[spark]``.
"""
