"""Backups follow the journal of their primary: the same records under the same numbers.

    feed.py       primary side: what of the journal each backup is sent
    backups.py    what each backup has, and whether it is ready
    follower.py   backup side: the same records under the same numbers
    line.py       what was received: in order, with bodies, whole turns at a time
    log.py        both: records by number, and the history of views
"""
