"""The log: the durable record of one master, append-only. FORMAT.md says how it lies on the disk, and what a start does.

log.py          Log: open, append, defer, follow, trim; `open_log` for reading only
history.py      LogHistory: what a core asks about its own past; the reading half
copies.py       LogCopy: the log on a disk as a whole: given away as a snapshot, replaced by another
content.py      what the records come to, moved on by each: tail, going back, trimming
segments.py     the files: segments that are appended to, checkpoints, what can be dropped
index.py        where each record lies, and which one holds which LSN, result or entry
ids.py          transaction id -> LSN, for millions of them
frames.py       the bytes of a segment, and which of them count after a crash
disks.py        FileDisk, MemoryDisk: a directory of the machine, and the same without one

current.py      the current state in a few numbers, the order in which records may come, where a restored log begins, decisions
split_book.py   what was given up when the queue went back, for people
recent.py       records kept unpacked in memory
limits.py       every bound, with its reason

append, follow --> frames + content, for each record --> one write, one sync (ports.Disk)
"""
