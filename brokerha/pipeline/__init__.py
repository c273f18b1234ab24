"""The log as data: rows of changes, the table in which they are kept for years, and what can be said of both. No Spark in here.

| module | what |
|---|---|
| `entries` | one entry of the log, as every source gives it |
| `rows` | one row for each change: columns, and how an entry becomes rows and rows an entry |
| `sources` | where entries come from: a node, a log stream, a stopped master's journal, a backup, an archive; and the nodes beside |
| `ranges` | options of the data source: which entries are read, and in which parts |
| `places` | folders and URLs: which there are, and reading and writing there |
| `parquet_files` | files that are named by their bytes, and committing them |
| `table` | the archive: a Delta table, its head and its chain |
| `observations` | what nodes said of themselves, beside it |
| `audit_rows`, `audit_copies` | files, rows and workers, compared with what they should be |
| `publishing` | rows as transactions: what the sink does, with a table of its modules |
| `loading` | files as rows for the sink, with a table of its modules |
| `report` | what a report tells, and its page (`report_nodes`, `report_page` with `report_page.html`) |
| `loading_columns` | rows of files as the columns that the sink takes: by a mapping, or by a parser |
| `loading_mapping` | the mapping file: how a row of CSV, JSON or Parquet becomes RDF statements, or a key with its value |
| `publishing_rows` | rows of the sink: which operations each one means, which are refused |
| `publishing_task` | one partition from its first row to the answer of its last transaction: what a task of the sink does |

What runs on Spark is in `brokerha.spark`. So all of this is tested without a Java runtime. Needs pyarrow and deltalake, from the extra
``brokerha[spark]``.
"""
