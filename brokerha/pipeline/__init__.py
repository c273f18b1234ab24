"""The log as data: rows of changes, an archive of them for years, and what can be made from it. No Spark in here.

| module | what |
|---|---|
| `entries` | one entry of the log, as every source gives it |
| `rows` | one row for each change: columns, and how an entry becomes rows |
| `sources` | where entries come from: a node, a log stream, the journal of a stopped master, a backup |
| `ranges` | which entries are read, and in which parts |
| `publishing` | rows as transactions: what the sink does, with a table of its modules |
| `loading` | files as rows for the sink, with a table of its modules |
| `state` | the state at an LSN, folded entry by entry: what everything else must come to |
| `audit` | the audit as a whole: files (`audit_files`), content (`audit_engine`, `audit_pieces`, `audit_columns`), workers (`audit_copies`) |
| `rebuilding`, `rebuilding_content` | the state at an LSN, on its way into a backup or a directory of a worker |

Everything that runs on Spark is in `brokerha.spark`, which is thin and calls what is here from its tasks. So all of this runs and
is tested without a Java runtime. Needs pyarrow, from the extra ``brokerha[spark]``.
"""
