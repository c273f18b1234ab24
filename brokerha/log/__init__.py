"""The log: the durable record of one master, append-only. FORMAT.md has its layout on disk, and the steps of a start.

log.py          Log: open, append, defer, follow, trim; `open_log` for reading only
history.py      LogHistory: the reading half of the log, for a core's questions about its own past; recent records
copies.py       LogCopy: the log on a disk as a whole: given away as a snapshot, replaced by another
content.py      the state that the records lead to, updated by each: tail, rewinds, trimming
segments.py     the files: segments for appending, checkpoints, removal of old files
index.py        the place of each record, and the record of each LSN, result or entry
ids.py          transaction id -> LSN, for millions of them
frames.py       the bytes of a segment, and which of them count after a crash
disks.py        FileDisk, MemoryDisk: a directory of the machine, and the same in memory

current.py      the current state in a few numbers, the order of records, the beginning of a restored log, decisions
split_book.py   transactions given up when the queue went back, for people

limits.py       every bound, with its reason

append, follow --> frames + content, for each record --> one write, one sync (ports.Disk)
"""
