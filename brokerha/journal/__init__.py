"""The journal: the durable record of one master. FORMAT.md says how it lies on the disk, and what recovery does.

lmdb_journal.py     LmdbJournal: all of it, and how it forgets
  writing.py        LmdbWriter: append a turn; the writing half
  turn.py           one turn on its way into the file: records, index rows, memory moved on
  history.py        LmdbHistory: what a core asks about its own past; the reading half
  reading.py        StoppedJournal: for reading only, by several processes at once
  recovery.py       what is known when a journal is opened, read back from its file
  rewinding.py      what goes when the queue goes back behind a split
  trimming.py       which rows go when everything below an LSN is forgotten
  compaction.py     a smaller copy of the file takes its place
  promise.py        the view that this process promised to
  verification.py   every problem of a file, for `brokerha log verify`
journal_copy.py     LmdbJournalCopy: the journal in a directory as a whole: given away, replaced by another
  snapshot_files.py copies that are given away
  loading.py        a copy that comes in
memory_journal.py   MemoryJournal: the same in plain lists, for the simulator; says what the other one must do
  memory_content.py everything durable of it, and its bytes
  memory_journal_copy.py  MemoryJournalCopy: given away and replaced
  memory_rewinds.py  how its queue goes back

split_book.py       what was given up when the queue went back, for people; used by both
beginning.py        where a journal of a restored cluster begins; used by both
current.py          the current state in a few numbers, and the order in which records may come; used by both
decisions.py        prepared transactions and remembered decisions; used by both
chunks.py           the chunks of a snapshot; used by both
tail.py             what is not synchronised yet
known_ids.py        transaction id -> LSN, written by key range
recent.py           records kept unpacked in memory
rows.py             the bytes of each row
database.py         LMDB environment, tables, snapshot, errors in our own words
directory.py        the directory: its lock, the length of its file
limits.py           every bound, with its reason

append, follow --> turn.py --> one LMDB transaction, one fsync --> memory is what history.py answers from
"""
