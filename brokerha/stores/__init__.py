"""What a worker keeps: RDF repositories, key-value tables and queues, and the one store that makes them move together.

worker_copy.py     a worker's directory: its present copy, snapshots for others, and the copy that replaces it
copy_directory.py  which copy is the present one, what a start does with damage; FORMAT.md: all files
generation.py      a copy that is replaced ends with its last reader
snapshots.py       snapshots for others; frozen.py: the content at one LSN as files
kept.py            the copy that a worker keeps over a split
load.py            a snapshot that comes in; snapshot_chunks.py: which chunk lies where
durable_files.py   small files that are replaced whole, directories that are fsynced
scrub.py           the data compared with its fingerprint, slowly, in the background
memory_copy.py     a copy without files, for tests and the simulator

backup_writing.py  a backup made from a snapshot, or extended from the log; BACKUP.md: its files
backup_directory.py  the folder of backups: who may write, how one takes its place whole; verifying
backup_manifest.py what a backup holds; backup_lines.py: files with lines of the log
restoring.py       a worker's directory made from a backup; restore_target.py: which state, what is in the way
building.py        a copy made in bulk from all content at one LSN; building_places.py: as a backup, or as a worker's directory
placing.py         a directory made beside its place and put there whole
replaying.py       lines of the log applied to a store and compared; log_pages.py: lines in pages

worker_store.py    the Store of a worker: one LSN over all repositories, tables and queues; the order of its two commits
batch.py           transactions on their way to the next commit
evaluation.py      the repository side of one transaction while nothing is changed yet
presence.py        which repositories exist, as a transaction sees it
repositories.py    all RDF repositories: what waits for each, how far each is durable
recovery.py        bringing repositories up from the effects log when the store opens
reading.py         kinds of reads, their arguments and answers; read_kinds.py, tables_reading.py: what they share
pending.py         operations of an open transaction, laid over what a store holds
together.py        several reads of one moment; reading_together.py: on a store in files
expectations.py    what a transaction demands of the state before it
queues.py          queues on LMDB; queue_change.py: the rules for one transaction; queue_reading.py: which messages
last_changes.py    when each repository, table and queue was changed last
effects_log.py     results of the last transactions, kept by the store itself
state.py           the row that says where the store stands
environment.py     the directory: lock, format, identity, LMDB
data_file.py       whether an LMDB file is whole, before LMDB is killed by it
key_value.py       key-value tables on LMDB; key_range.py: keys and ranges of them
memory.py          a store without files, for tests and the simulator; memory_image.py, memory_rdf.py, memory_reading.py: its parts
control.py         the control suite: checks at one LSN, what a transaction does to them and touches
control_table.py   its rows on disk
control_judge.py   the judgement on one transaction; control_keys.py: conditions of keys
control_sparql.py  queries as checks: what is allowed, the form that an update can evaluate
control_run.py     evaluating them on what is nowhere yet, without a trace
fingerprint.py     order-independent digest of the content, versioned

rdf.py             one RDF repository on pyoxigraph: commit with its position, change of an operation, lines
rdf_query.py       reading a repository: queries, statements, limits; hides the system graph
rdf_formats.py     result formats and what an Accept header prefers; rdf_as_xml.py: what RDF/XML cannot write
rdf_stream.py      long results, handed over from the one thread that may read them
rdf_change.py      net changes of quads: QuadChange, PendingQuads, N-Quads text in and out
rdf_view.py        the quads as a transaction sees them: engine, pending, its own changes
rdf_terms.py       short names for terms
rdf_errors.py      which errors of the engine are damage of its files
sparql_text.py     admission: may this update or query go on?
sparql_tokens.py   SPARQL cut into tokens; limits of nesting
sparql_refusals.py LOAD, SERVICE, reserved names
sparql_request.py  the operations of an update request, the kind of a query
sparql_template.py quads with variables and blank nodes in them; the short way for plain data
sparql_functions.py NOW, RAND, UUID, BNODE, the same on every site
sparql_modify.py   one DELETE/INSERT WHERE: solutions become quads
sparql_update.py   update requests as exact, deterministic effects
sparql_scratch.py  open operations as one text that never commits; sparql_full.py: names in full
sparql_union.py    updates where the default graph is the union of all graphs
sparql_protocol.py what protocols say beside a text, written into it: bindings, slices, datasets of updates
rdf_question.py    a read in the form that an update can evaluate; rdf_together.py: reads within one transaction of the engine

             SPARQL text + tx id + timestamp                      effect
change_of  ----------------------------------->  QuadChange  ------------->  commit(removed, added, lsn)
             on the state before it, read only                    one atomic write, position included
"""
