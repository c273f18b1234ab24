"""Backups: made, extended, verified, restored, built in bulk; BACKUP.md: their files.

    writing.py           a backup made from a snapshot, or extended from the log; BACKUP.md: its files
    directory.py         the folder of backups: who may write, how one takes its place whole; verifying
    manifest.py          the manifest of a backup: what it holds
    lines.py             a file with lines of the log: what an incremental backup adds (BACKUP.md, section 3)
    restoring.py         a worker's directory made from a backup
    restore_target.py    which state of a backup is restored, and what is in the way of it
    undoing.py           one transaction that takes a running cluster back, made of what the log changed since
    building.py          a worker's copy made in bulk: all of its content at one LSN is given, sorted
    building_places.py   where a copy is built: as a backup that `brokerha restore` takes
    placing.py           a directory made beside its place and put there whole
    replaying.py         lines of the log, applied to a store one batch after the other, each compared with its fingerprint
    log_pages.py         lines of a log, taken in pages from a source that has them
"""
