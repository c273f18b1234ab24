"""Backups: made, extended, verified, restored, built in bulk; BACKUP.md: their files.

    writing.py           makes a backup from a snapshot, or extends it from the log; BACKUP.md: its files
    directory.py         the folder of backups on a disk: one writer, backups placed complete, verification
    manifest.py          the manifest of a backup: its content, as one JSON file
    lines.py             a file with lines of the log (BACKUP.md, section 3); lines read in pages from a source
    restoring.py         makes a worker's directory from a backup; applies lines of the log, each compared with its fingerprint
    restore_target.py    the state to restore, the obstacles to it, and a directory made beside its place
    undoing.py           one transaction that takes a running cluster back to an earlier LSN, made from the log
    building.py          a worker's copy made in bulk from its sorted content at one LSN
    building_places.py   where a copy is built: as a backup for `brokerha restore`, or as a worker's directory
"""
