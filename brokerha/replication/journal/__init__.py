"""Backups follow the journal of their primary: the same records under the same numbers.

    feed.py       primary side: the records that each backup is sent
    backups.py    the progress of each backup, and whether it is ready
    follower.py   backup side: the same records under the same numbers
    line.py       received records: in order, with bodies, whole turns at a time
    log.py        both sides: records by number, and the history of views
"""
